"""Run a sweep on a Ray cluster of three machines, all on this one, and take one away while it works.

    unshare -n -p -f --kill-child --mount-proc python tests/sweep/ray_cluster.py SWEEP_FILE FOLDER

It must run in a network of its own, where Ray finds no other address than the loopback's, and among processes of
its own, so that nothing is left over. It prints how the command ended, and what was under way when a machine went.
"""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

SET_FLAGS = 0x8914  # SIOCSIFFLAGS
UP = 0x1
PATIENCE_S = 1800
# Notice within seconds that a machine is gone, by default it takes a quarter of a minute; but do not take one for
# gone that only has a busy processor: a dead one refuses at once, a busy one answers late.
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 60_000,
    "health_check_failure_threshold": 3,
}


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, SET_FLAGS, struct.pack("16sH14x", b"lo", UP))


def cells_on(raylet: int) -> int:
    """Return how many cells run below a machine's daemon: Ray names a process after what it does."""
    running = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == raylet and b"run_scenario" in stat.with_name("cmdline").read_bytes():
                running += 1
        except OSError:  # it has ended meanwhile
            continue
    return running


def sweep_and_lose_a_machine(file: str, folder: Path, cluster: Any, victim: Any) -> dict[str, object]:
    words = ["sweep", file, "--out", str(folder), "--ray", cluster.address, "--json"]
    raylet = victim.all_processes["raylet"][0].process.pid
    with subprocess.Popen(
        [sys.executable, "-m", "cranny.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sweep:
        until = time.monotonic() + PATIENCE_S
        lost, finished = 0, 0
        while not (lost and finished) and sweep.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
            lost, finished = cells_on(raylet), len(list(folder.glob("cells/*.json")))
        cluster.remove_node(victim, allow_graceful=False)
        out, err = sweep.communicate()
    return {"code": sweep.returncode, "out": out, "err": err, "lost": lost, "finished": finished}


def main(file: str, folder: str) -> None:
    bring_loopback_up()
    make: Any = import_module("ray.cluster_utils").Cluster

    # A short path: the names of Ray's sockets must fit into 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as place:
        # Ray runs tasks at a low priority, at which they wait for all other tests.
        os.environ.update(RAY_TMPDIR=place, RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
        machine = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
        cluster = make(
            initialize_head=True,
            head_node_args={**machine, "num_cpus": 0, "include_dashboard": False, "_system_config": HEALTH},
        )
        first, _ = (cluster.add_node(**machine, num_cpus=1) for _ in range(2))
        told = sweep_and_lose_a_machine(file, Path(folder), cluster, first)
        cluster.shutdown()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
