"""Random streams of events under every policy: nothing that a policy decides may break the books."""

import math
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.views import seen

from cranny.core.check import check
from cranny.core.protocol import Placer
from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.collective import COLLECTIVES, PLACED
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies import TABLE, policy


def _present(name: str) -> bool:
    module, _, made = TABLE[name].path.partition(":")
    try:
        return hasattr(import_module(module), made)
    except ModuleNotFoundError:
        return False


POLICIES = [name for name in TABLE if _present(name)]
# Nobody can run CP-SAT without the extra `exact`.
EXCUSED = set() if find_spec("ortools") else {"exact"}
# CP-SAT takes its time, so it gets few and small jobs.
EXAMPLES, SLOW_EXAMPLES = 40, 20
LARGEST, SLOW_LARGEST = 20, 6

EVEN = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4, link_gbps=100, oversubscription=2)
UNEVEN = Cluster.of(
    Switch(
        "top",
        (
            Machine("head", 1),
            Switch("r0", (Machine("a", 6, "h200"), Machine("b", 6, "h200")), (100.0, 100.0)),
            Switch("r1", (Machine("c", 2, "t4"), Machine("d", 3, "t4"), Machine("e", 8)), (25.0, 25.0, 10.0)),
        ),
        (10.0, 50.0, 25.0),
    )
)
CLUSTERS = {"even": EVEN, "uneven": UNEVEN}
# Small and large gradients, skewed and even ones.
MODELS = ("resnet50", "vgg16", "gpt2", "gpt3-2.7b")


class Wanted(NamedTuple):
    """A job without its name."""

    gpus: int
    model: str
    tenant: str
    gpu_type: str | None
    collective: str = "halving-doubling"
    tp: int = 1
    pp: int = 1


@st.composite
def jobs(draw: st.DrawFn, largest: int) -> Wanted:
    """Jobs of all kinds."""
    model, tenant = draw(st.sampled_from(MODELS)), draw(st.sampled_from(["", "red"]))
    gpu_type = draw(st.sampled_from([None, None, None, "h200", "t4"]))
    if draw(st.integers(0, 4)):
        # `exact` refuses collectives whose pairs depend on the placement.
        flat = tuple(name for name in COLLECTIVES if name not in PLACED)
        collectives = COLLECTIVES if largest == LARGEST else flat
        gpus, collective = draw(st.integers(1, largest)), draw(st.sampled_from(collectives))
        return Wanted(gpus, model, tenant, gpu_type, collective)
    groups = [(2, 1, 1), (1, 2, 2), (2, 2, 1), (4, 1, 1), (2, 1, 3), (2, 2, 2)]
    tp, pp, dp = draw(st.sampled_from([group for group in groups if math.prod(group) <= largest]))
    return Wanted(tp * pp * dp, model, tenant, gpu_type, tp=tp, pp=pp)


def streams(largest: int) -> st.SearchStrategy[list[tuple[str, Wanted | int]]]:
    """Streams of events with jobs of at most `largest` GPUs."""
    place = st.tuples(st.just("place"), jobs(largest))
    other = st.tuples(st.sampled_from(["release", "move", "fail", "drain", "repair"]), st.integers(0, largest))
    return st.lists(st.one_of(place, place, other), min_size=3, max_size=largest + 5)


def make(name: str) -> Placer:
    """Make a policy afresh; the random one always with the same seed."""
    options = {"rng": np.random.default_rng(7)} if name == "random" else {}
    return policy(name, **options)


@dataclass
class Stream:
    """A cluster under one policy."""

    name: str
    state: ClusterState
    serial: int = 0
    placer: Placer = field(init=False)

    def __post_init__(self) -> None:
        self.placer = make(self.name)

    def ask(self, job: Job, view: Snapshot) -> Placement | None:
        """Ask the policy, and see that it keeps its side of the contract."""
        before = seen(view)
        placement = self.placer.place(job, view)
        assert seen(view) == before
        first, again = make(self.name), make(self.name)
        assert first.place(job, view) == again.place(job, view)
        if self.name != "random":  # whose draws go on
            assert first.place(job, view) == placement
        if placement is None:
            reason = self.placer.why_wait(job, view)
            assert reason.strip()
            assert "nothing holds it up" not in reason
            assert seen(view) == before
            return None
        assert len(placement.machines) == job.gpus
        self.check_facts(placement)
        return placement

    def check_facts(self, placement: Placement) -> None:
        """See that what the placement says of itself can be true."""
        facts = placement.facts
        assert placement.explain()
        if "gpus_on" in facts:  # of NetPack, which looks at links and not at idle machines
            assert sum(facts["gpus_on"].values()) == len(placement.machines)  # type: ignore[attr-defined]
            return
        assert facts["idle_machines_minimum"] <= facts["idle_machines_opened"]  # type: ignore[operator]
        assert facts["machines_minimum"] <= facts["machines_used"]  # type: ignore[operator]
        assert facts["cross_machine_bytes_bound"] <= facts["cross_machine_bytes"] * (1 + 1e-9)  # type: ignore[operator]

    def play(self, kind: str, what: Wanted | int) -> None:
        """Let one thing happen."""
        if isinstance(what, Wanted):
            self.serial += 1
            job = Job(id=f"j{self.serial}", **what._asdict())
            placement = self.ask(job, self.state.snapshot())
            if placement is not None:
                self.state.place(job, placement)
            return
        if kind in {"fail", "drain", "repair"}:
            getattr(self.state, kind)(what % len(self.state.cluster.machines))
            return
        running = list(self.state.running.values())
        if not running:
            return
        chosen = running[what % len(running)].job
        if kind == "release":
            self.state.release(chosen.id)
            return
        placement = self.ask(chosen, self.state.snapshot().without(chosen.id))
        if placement is not None:
            self.state.move(chosen.id, placement)


def test_every_policy_of_the_table_is_tried() -> None:
    assert set(POLICIES) | EXCUSED == set(TABLE)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", POLICIES)
def test_no_stream_of_events_breaks_the_books(name: str, cluster: str) -> None:
    slow = name == "exact"

    @settings(
        max_examples=SLOW_EXAMPLES if slow else EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(streams(SLOW_LARGEST if slow else LARGEST))
    def run(events: list[tuple[str, Wanted | int]]) -> None:
        stream = Stream(name, ClusterState(CLUSTERS[cluster]))
        for kind, what in events:
            stream.play(kind, what)
            check(stream.state)

    run()
