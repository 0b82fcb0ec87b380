"""Closed forms that the network models must match: small cases with an answer computed by hand."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cranny.core.protocol import Network
from cranny.core.state import ClusterState
from cranny.core.traffic import communication, traffic
from cranny.model.circle import Circle
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile
from cranny.model.validate import counted
from cranny.network import networks

NEAR = 1e-9
LINK_GBPS = 100.0
K_BYTES = 1e9
K_GBIT = 8.0

Closed = tuple[str, float, float]  # what it is about, the known value, and the computed one


class ConformanceCheck(NamedTuple):
    """A known value, and the computed one."""

    about: str
    known: float
    got: float

    @property
    def ok(self) -> bool:
        """Whether the two agree."""
        return math.isclose(self.known, self.got, rel_tol=NEAR, abs_tol=NEAR)


def conformance(network: str) -> list[ConformanceCheck]:
    """Run the checks of a network model."""
    closed = [*_volumes(), *_slowdowns(network), *(_times() if network != "instant" else ())]
    if network == "steady":
        closed += [*_shares(), *_aggregation()]
    if network == "phases":
        closed += [*_phases(), *_shifts()]
    return [ConformanceCheck(*each) for each in closed]


def _job(ranks: int, collective: str) -> Job:
    return Job("a", ranks, ModelProfile("unit", grad_bytes=K_BYTES, iteration_ms=1000.0), collective)


def _volumes() -> Iterator[Closed]:
    """Bytes between machines, in K, when every rank has a machine of its own; an exchange counts once."""
    for ranks in (2, 4, 8):
        own = tuple(range(ranks))
        known = {
            # 2(n-1) steps in which each of n ranks passes K/n on; two ranks exchange K/2 twice.
            "ring": 2.0 * (ranks - 1) if ranks > 2 else 1.0,
            # Halving: n/2 pairs exchange K/2, K/4, ...; then all the way back.
            "halving-doubling": ranks * (1 - 1 / ranks),
            # Up the tree and down again over n-1 edges.
            "tree": 2.0 * (ranks - 1),
        }
        for name, volume in known.items():
            moved = traffic(_job(ranks, name), own).cross_machine_bytes / K_BYTES
            yield f"{name} of {ranks}: K between machines", volume, moved
    yield "any job on one machine: K between machines", 0.0, traffic(_job(4, "ring"), (0,) * 4).cross_machine_bytes


def _rings(network: str, count: int) -> tuple[Network, ClusterState, dict[str, float]]:
    """Start rings of two, over one link, that compute for 80 ms and, alone, communicate for 80 ms."""
    cluster = Cluster.single_rack(2, 4, LINK_GBPS)
    even = ModelProfile("even", grad_bytes=K_BYTES, iteration_ms=80.0)
    model, state = networks.network(network).on(cluster), ClusterState(cluster)
    slowdown: dict[str, float] = {}
    for number in range(count):
        state.place(Job(f"job-{number}", 2, even, "ring"), Placement((0, 1)))
        slowdown |= dict(model.start(state.find(f"job-{number}")))
    return model, state, slowdown


def _slowdowns(network: str) -> Iterator[Closed]:
    """Slowdowns of rings of two that compute for as long as, alone, they communicate."""
    for count in (1, 2, 4):
        _, _, slowdown = _rings(network, count)
        # Jobs that start together communicate together: each communication takes as many times longer.
        known = {"instant": 1.0, "isolated": 2.0, "steady": 1.0 + count, "phases": 1.0 + count}[network]
        about = f"{counted(count, 'job')} over one link, half of the time alone spent on communication: slowdown"
        yield about, known, slowdown["job-0"]


def _times() -> Iterator[Closed]:
    """Seconds of an allreduce of 1 GB over links of 100 Gbps, each rank on a machine of its own."""
    for ranks in (2, 4, 8):
        cluster = Cluster.single_rack(ranks, 1, LINK_GBPS)
        alone = communication(cluster, _job(ranks, "ring"), tuple(range(ranks)))
        yield f"ring of {ranks}: seconds", 2 * (ranks - 1) / ranks * K_GBIT / LINK_GBPS, alone.comm_s
    oversubscribed = Cluster.fat_tree(2, 1, 1, LINK_GBPS, 4.0)
    across = communication(oversubscribed, _job(2, "ring"), (0, 1))
    yield "ring of 2 over a rack's uplink of 25 Gbps: seconds", K_GBIT / 25.0, across.comm_s


def _shares() -> Iterator[Closed]:
    """Rates of jobs on shared links."""
    from cranny.core.flows import fixed
    from cranny.network.steady.rates import Rates

    def rates(link_gbps: Sequence[float], jobs: Sequence[Sequence[int]]) -> list[float]:
        net = Rates(link_gbps)
        return [net.rate_gbps(job) for job in net.add_all(fixed(dict.fromkeys(links, 1.0)) for links in jobs)]

    for count in (1, 2, 3, 10):
        each = rates([100.0], [[0]] * count)[-1]
        yield f"{counted(count, 'job')} on one link of 100 Gbps: each", 100.0 / count, each
    # A line of two links: the job over both and one on each; the smaller link gives less to the long job.
    long, first, second = rates([100.0, 30.0], [[0, 1], [0], [1]])
    yield "a job over links of 100 and 30 Gbps, one more on each: the long one", 15.0, long
    yield "the same: the one on 30 Gbps", 15.0, second
    yield "the same: the one on 100 Gbps gets the rest", 85.0, first


def _aggregation() -> Iterator[Closed]:
    """Rates with in-network aggregation (NetPack, Table 1): two workers and the server of each job in one rack."""
    from cranny.core.flows import parameter_server
    from cranny.network.steady.rates import Rates

    cluster = Cluster.single_rack(3, 1, LINK_GBPS)

    def rate(pat_gbps: float, jobs: int = 1) -> float:
        net = Rates(cluster.uplink_gbps, [pat_gbps])
        numbers = net.add_all(parameter_server(cluster, (0, 1), 2) for _ in range(jobs))
        return net.rate_gbps(numbers[0])

    yield "aggregation: a switch that aggregates everything gives the link's rate", 100.0, rate(1000.0)
    yield "aggregation: none, two workers share the server's link", 50.0, rate(0.0)
    # Aggregated up to 40 Gbps; then both workers' streams fill the other 60 Gbps: 40 + 60 / 2.
    yield "aggregation: 40 Gbps of it, then both workers' streams", 70.0, rate(40.0)
    yield "aggregation: two jobs share the links", 50.0, rate(1000.0, jobs=2)


def _phases() -> Iterator[Closed]:
    """Slowdowns of iterations of jobs that are interleaved on a link of 100 Gbps, or are not."""
    from cranny.network.phases.phased_run import long_run
    from cranny.network.phases.segments import PhasedJob

    def mean(circles: Sequence[Circle], shifts_s: Sequence[float], link_gbps: float = LINK_GBPS) -> float:
        phased_jobs = [PhasedJob({0: circle}, shift_s) for circle, shift_s in zip(circles, shifts_s, strict=True)]
        return long_run(phased_jobs, [link_gbps]).outcomes[0].mean_s / circles[0].iteration_s

    half = Circle.half_up(1.0, LINK_GBPS)
    yield "phases: two jobs up for half of the time, together", 1.5, mean([half] * 2, [0.0, 0.0])
    yield "phases: a quarter of an iteration apart", 1.25, mean([half] * 2, [0.0, 0.25])
    yield "phases: half an iteration apart", 1.0, mean([half] * 2, [0.0, 0.5])
    yield "phases: together on a link twice as wide", 1.0, mean([half] * 2, [0.0, 0.0], 2 * LINK_GBPS)
    third = Circle(1.0, ((0.5, 5 / 6, LINK_GBPS),))
    yield "phases: three jobs up for a third, together", 5 / 3, mean([third] * 3, [0.0] * 3)
    yield "phases: a third of an iteration apart", 1.0, mean([third] * 3, [0.0, 1 / 3, 2 / 3])
    # Up at 0-10, 40-50 and 80-90 ms of 120, and at 10-20 and 70-80 ms.
    short, long = Circle(0.04, ((0.0, 0.01, LINK_GBPS),)), Circle(0.06, ((0.0, 0.01, LINK_GBPS),))
    yield "phases: iterations of 40 and 60 ms, interleaved on 120 ms", 1.0, mean([short, long], [0.0, 0.01])


def _shifts() -> Iterator[Closed]:
    """Slowdowns of two jobs like those of `_slowdowns`, once one is shifted by half an iteration."""
    model, state, slowdown = _rings("phases", 2)
    shifted = [state.find(f"job-{number}")._replace(shift_s=shift_s) for number, shift_s in enumerate((0.0, 0.08))]
    slowdown |= dict(model.shift(shifted))
    yield "2 jobs over one link, one shifted by half an iteration: slowdown", 2.0, slowdown["job-0"]
    slowdown |= dict(model.end("job-1"))
    yield "the same with the other gone: slowdown", 2.0, slowdown["job-0"]
