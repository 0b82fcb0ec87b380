"""Many pending jobs: how long cranny's rounds take, and how often it asks Slurm.

    python -m tests.slurm.pending --jobs 10000

Jobs that opted in fill a real Slurm, and wait. Rounds are those of the service, from its metrics; calls are
counted by a wrapper around Slurm's commands. `cranny bench slurm-pending` has the budgets.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.slurm.real_slurm import RealSlurm, until
from tests.slurm.stream import LUA, Served

SUBMITTERS = 4
COUNTED = ("squeue", "sinfo", "scontrol")
PATIENCE_S = 900.0


def counting(folder: Path) -> Path:
    """Make commands that count their calls, and return their folder."""
    folder.mkdir()
    for name in COUNTED:
        file = folder / name
        file.write_text(f'#!/bin/sh\necho {name} >> {folder}/calls\nexec {shutil.which(name)} "$@"\n')
        file.chmod(0o755)
    return folder


def measure(jobs: int, seconds: float, interval_s: float, nodes: int = 64) -> dict[str, float]:
    """Submit jobs, serve them for a while, and say what that took."""
    slurm = RealSlurm(nodes, rack=max(1, nodes // 8), lua=LUA, extra=(f"MaxJobCount={2 * jobs + 1000}",))
    folder = Path(tempfile.mkdtemp(prefix="cranny-pending-"))
    calls = counting(folder / "bin")
    served = Served(slurm, folder, interval_s=interval_s, first=calls)
    try:
        slurm.start()
        script = folder / "job.sh"
        script.write_text("#!/bin/sh\nexec sleep 3600\n")
        sbatch = f"sbatch -o /dev/null --comment=cranny -t 60 --gpus-per-node=4 {script}"
        loop = f"for i in $(seq {jobs // SUBMITTERS}); do {sbatch}; done"
        many = [
            subprocess.Popen(["sh", "-c", loop], env=slurm.env, stdout=subprocess.DEVNULL)
            for _ in range(SUBMITTERS)
        ]
        if any(each.wait() for each in many):
            raise RuntimeError("sbatch has failed")
        begun = time.monotonic()
        served.start()
        submitted = jobs // SUBMITTERS * SUBMITTERS
        until(lambda: _open(served) >= submitted, "cranny to know all jobs", PATIENCE_S)
        found = {"known after (s)": time.monotonic() - begun}
        begun, before, rounds = time.monotonic(), _calls(calls), _rounds(served)
        time.sleep(seconds)
        took_s, after, later = time.monotonic() - begun, _calls(calls), _rounds(served)
        for name in COUNTED:
            found[f"{name} a minute"] = (after.count(name) - before.count(name)) * 60 / took_s
        count = later["count"] - rounds["count"]
        found |= {"rounds": count, "mean round (s)": (later["sum"] - rounds["sum"]) / max(1.0, count)}
        found["rounds over 1 s"] = count - (later["1.0"] - rounds["1.0"])
        found["running"] = float(served.get("cluster")["counts"].get("running", 0))
        return found
    finally:
        served.kill()
        slurm.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _open(served: Served) -> int:
    """Return how many jobs wait or run."""
    time.sleep(0.5)
    answer = served.get("cluster")
    counts = answer["counts"] if isinstance(answer, dict) else {}
    return sum(int(counts.get(status, 0)) for status in ("waiting", "starting", "running"))


def _calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return file.read_text().split() if file.exists() else []


def _rounds(served: Served) -> dict[str, float]:
    """Return count and sum of the seconds of rounds, and how many were within 1 s."""
    text = served.ask("metrics") or ""
    pattern = r'^cranny_round_seconds(?:_(count|sum)|_bucket\{le="(1\.0)"\}) (\S+)$'
    return {kind or bound: float(value) for kind, bound, value in re.findall(pattern, text, re.MULTILINE)}


def main() -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=64, help="with 8 GPUs each")
    parser.add_argument("--interval", type=float, default=5.0, help="of cranny serve --slurm-interval")
    asked = parser.parse_args()
    for name, value in measure(asked.jobs, asked.seconds, asked.interval, asked.nodes).items():
        sys.stdout.write(f"{name:20}{value:10.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
