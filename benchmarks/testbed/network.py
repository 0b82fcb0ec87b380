"""The links of a cluster as network namespaces of Linux, joined by bridges and shaped by token buckets.

Every machine and every switch of the cluster is a namespace. Its uplink is a pair of virtual interfaces, shaped in
both directions. The queue of a link is a FIFO, as in most switches, unless `Links` says otherwise. Jobs enter the
namespace of their machine with `enter`, and talk over these links only. Several networks may be there at a time.
It needs root, and the commands `ip` and `tc`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

from benchmarks.testbed.enter import INTERFACE, NETWORK, address, namespace
from cranny.model.cluster import Cluster

PREFIX = "cranny"
NAMESPACES = Path("/run/netns")
PAYLOAD = 0.956  # of the wire: what is left of packets of 1,500 bytes for data of TCP
# TCP restarts after a pause as fast as the queue lets it, and repeats what is lost without long pauses.
RESTART = ("initcwnd", "40", "rto_min", "20ms")
BURST_BYTES = 16_384
MOST_PORTS = 200
FAIR_QUANTUM = (
    69_536  # bytes that a queue sends in its turn: at least a packet before it is cut to the link's size
)
BY_SENDER = "3,48 0 0 29,4 0 0 65536,22 0 0 0"  # classic BPF: class 1:N for packets of the address 10.77.0.N
_made = count()


class Links(NamedTuple):
    """How links queue what they cannot send yet, and how TCP fills them."""

    queue_s: float = 0.005  # a few percent of an exchange of gradients, as in clusters; both are shorter there
    congestion: str = "cubic"  # whatever this machine uses by itself
    fair: bool = False  # a queue for each machine that sends, in turn, instead of one FIFO
    restarts_fast: bool = True  # after a pause; otherwise as Linux does by itself


FIFO = Links()


class NoNetworkError(Exception):
    """No network can be made: the user may not, or a command is missing."""


@contextmanager
def emulated(cluster: Cluster, links: Links = FIFO) -> Iterator[str]:
    """Make the links of a cluster, and remove them in the end; give the name by which jobs enter them."""
    if len(cluster.machines) > MOST_PORTS:
        raise NoNetworkError(f"more than {MOST_PORTS} machines")
    remove_left_behind()
    name = f"{PREFIX}-{os.getpid()}-{next(_made)}"
    try:
        for node in range(len(cluster.parent)):
            _run("ip", "netns", "add", namespace(name, node))
            _run("ip", "-n", namespace(name, node), "link", "set", "lo", "up")
        for node in range(len(cluster.machines), len(cluster.parent)):
            switch = namespace(name, node)
            _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for node in range(cluster.root):
            _link(cluster, links, name, node)
        yield name
    finally:
        _remove(namespace(name, node) for node in range(len(cluster.parent)))


@cache
def why_not() -> str | None:
    """Say why no network can be made here; None if one can."""
    missing = [command for command in ("ip", "tc") if shutil.which(command) is None]
    if missing:
        return f"the command {missing[0]} is missing (package iproute2)"
    try:
        with emulated(Cluster.single_rack(1, 1)):
            return None
    except NoNetworkError as error:
        return f"no network namespace can be made: {error}"


def command(name: str, argv: Sequence[str]) -> list[str]:
    """Return the command that starts a rank on its machine: where `CRANNY_MACHINE` says."""
    script = Path(__file__).with_name("enter.py")
    return [sys.executable, str(script), name, *argv]


def remove_left_behind() -> None:
    """Remove the networks of processes that were killed."""
    found = [each.name for each in NAMESPACES.iterdir()] if NAMESPACES.is_dir() else []
    for each in found:
        prefix, _, rest = each.partition("-")
        pid = rest.partition("-")[0]
        if prefix == PREFIX and pid.isdecimal() and not Path("/proc", pid).exists():
            _remove([each])


def _link(cluster: Cluster, links: Links, name: str, node: int) -> None:
    """Join a node to the switch above it."""
    below, above = namespace(name, node), namespace(name, cluster.parent[node])
    port = f"port{node}"
    pair = ("ip", "link", "add", INTERFACE, "netns", below, "type", "veth", "peer", "name", port, "netns", above)
    _run(*pair)
    bits = round(cluster.uplink_gbps[node] * 1e9 / PAYLOAD)
    for inside, interface in ((below, INTERFACE), (above, port)):
        shape = _shape_fairly if links.fair else _shape
        shape(inside, interface, bits, links.queue_s, len(cluster.machines))
    _run("ip", "-n", above, "link", "set", port, "master", "bridge")
    _run("ip", "-n", above, "link", "set", port, "up")
    if node < len(cluster.machines):
        _run("ip", "-n", below, "address", "add", f"{address(node)}/16", "dev", INTERFACE)
    else:
        _run("ip", "-n", below, "link", "set", INTERFACE, "master", "bridge")
    _run("ip", "-n", below, "link", "set", INTERFACE, "up")
    if node < len(cluster.machines):
        route = ("route", "replace", NETWORK, "dev", INTERFACE, "src", address(node), "congctl", links.congestion)
        _run("ip", "-n", below, *route, *(RESTART if links.restarts_fast else ()))


def _shape(inside: str, interface: str, bits: int, queue_s: float, _machines: int) -> None:
    """Give an interface its rate and one FIFO."""
    shape = ("tbf", "rate", f"{bits}bit", "burst", f"{BURST_BYTES}b", "limit", f"{_queued(bits, queue_s)}b")
    _run("tc", "-n", inside, "qdisc", "add", "dev", interface, "root", *shape)


def _shape_fairly(inside: str, interface: str, bits: int, queue_s: float, machines: int) -> None:
    """Give an interface its rate and a queue for each machine that sends: each has the same share."""
    on = ("tc", "-n", inside)
    burst = ("burst", f"{BURST_BYTES}b", "cburst", f"{BURST_BYTES}b")
    _run(*on, "qdisc", "add", "dev", interface, "root", "handle", "1:", "htb", "default", "ff")
    whole = ("htb", "rate", f"{bits}bit", *burst)
    _run(*on, "class", "add", "dev", interface, "parent", "1:", "classid", "1:fff", *whole)
    for leaf in (*range(1, machines + 1), 0xFF):
        share = ("htb", "rate", f"{bits // 100}bit", "ceil", f"{bits}bit", *burst, "quantum", str(FAIR_QUANTUM))
        of = f"1:{leaf:x}"
        _run(*on, "class", "add", "dev", interface, "parent", "1:fff", "classid", of, *share)
        queue = ("bfifo", "limit", f"{_queued(bits, queue_s)}b")
        _run(*on, "qdisc", "add", "dev", interface, "parent", of, *queue)
    leaf_of = ("bpf", "bytecode", BY_SENDER, "flowid", "1:ff")
    _run(*on, "filter", "add", "dev", interface, "parent", "1:", "protocol", "ip", *leaf_of)


def _queued(bits: int, queue_s: float) -> int:
    """Return the bytes that a queue holds."""
    return max(2 * BURST_BYTES, round(bits * queue_s / 8))


def _remove(namespaces: Iterator[str] | Sequence[str]) -> None:
    """Remove namespaces, and so the interfaces inside."""
    for each in namespaces:
        if (NAMESPACES / each).exists():
            with suppress(NoNetworkError):  # the others must go as well
                _run("ip", "netns", "delete", each)


def _run(*argv: str) -> None:
    """Run a command, or say why it failed."""
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)  # noqa: S603 - our own
    except subprocess.CalledProcessError as error:
        raise NoNetworkError(f"{' '.join(argv)}: {error.stderr.strip()}") from None
    except OSError as error:
        raise NoNetworkError(f"{argv[0]}: {error.strerror}") from None
