"""Random streams of events under every policy: nothing that a policy decides may break the books."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check
from tests.reference.views import seen

from cranny.core.protocol import Placer
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.collective import COLLECTIVES, PLACED
from cranny.model.event import Event, MachineDrained, MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action
from cranny.network.networks import NETWORKS
from cranny.policies import TABLE, policy
from cranny.policy_choice import decision_period_s, resolve_policy
from cranny.sim.record import DONE
from cranny.sim.replay import Replay


def _present(name: str) -> bool:
    module, _, made = TABLE[name].path.partition(":")
    try:
        return hasattr(import_module(module), made)
    except ModuleNotFoundError:
        return False


POLICIES = [name for name in TABLE if _present(name)]
# CP-SAT does not run without the extra `exact`.
EXCUSED = set() if find_spec("ortools") else {"exact"}
# CP-SAT takes its time, so it gets few and small jobs.
EXAMPLES, SLOW_EXAMPLES, REPLAYS = 24, 12, 8
LARGEST, SLOW_LARGEST = 20, 6

EVEN = Cluster.fat_tree(2, 3, 4, link_gbps=100, oversubscription=2, pat_gbps=200)
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
# The type of GPU that a job asks for, and how fast it is on those that can run it; the last can never run.
TYPES: tuple[tuple[str | None, Mapping[str, float] | None], ...] = (
    *[(None, None)] * 8,
    ("h200", None),
    ("t4", None),
    (None, {"h200": 1.0}),
    (None, {"h200": 1.0, "t4": 0.4}),
    ("t4", {"h200": 1.0, "t4": 0.4}),
    ("t4", {"h200": 1.0}),
)


class Wanted(NamedTuple):
    """A job without its name."""

    gpus: int
    model: str
    tenant: str
    gpu_type: str | None
    speeds: Mapping[str, float] | None = None
    collective: str = "halving-doubling"
    tp: int = 1
    pp: int = 1


def jobs(largest: int) -> st.SearchStrategy[Wanted]:
    """Jobs of all kinds, each drawn as one number: value by value takes longer than a policy does."""
    # `exact` refuses collectives whose pairs depend on the placement.
    flat = [name for name in COLLECTIVES if largest == LARGEST or name not in PLACED]
    groups = [(2, 1, 1), (1, 2, 2), (2, 2, 1), (4, 1, 1), (2, 1, 3), (2, 2, 2)]
    fitting = [group for group in groups if math.prod(group) <= largest]
    kinds = len(MODELS) * 2 * len(TYPES)

    def wanted(number: int) -> Wanted:
        number, kind = divmod(number, kinds)
        kind, model = divmod(kind, len(MODELS))
        kind, tenant = divmod(kind, 2)
        who = (MODELS[model], ("", "red")[tenant], *TYPES[kind])
        number, is_flat = divmod(number, 5)
        if is_flat:
            number, gpus = divmod(number, largest)
            return Wanted(gpus + 1, *who, flat[number % len(flat)])
        tp, pp, dp = fitting[number % len(fitting)]
        return Wanted(tp * pp * dp, *who, tp=tp, pp=pp)

    return st.integers(0, kinds * 5 * largest * len(flat) - 1).map(wanted)


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
            assert "can start now" not in reason
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
        chosen = running[what % len(running)].submitted
        if kind == "release":
            self.state.release(chosen.id)
            return
        placement = self.ask(chosen, self.state.snapshot().without(chosen.id))
        if placement is not None:
            self.state.move(chosen.id, placement)


def test_every_policy_of_the_table_is_tried() -> None:
    assert set(POLICIES) | EXCUSED == set(TABLE)


def own_name(name: str, cluster: str) -> str:
    """Return a name for a property: what is drawn depends on it, so that each policy gets examples of its own."""
    return re.sub(r"\W", "_", f"run_{name}_{cluster}")


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", POLICIES)
def test_no_stream_of_events_breaks_the_books(name: str, cluster: str) -> None:
    slow = name == "exact"

    def run(events: list[tuple[str, Wanted | int]]) -> None:
        stream = Stream(name, ClusterState(CLUSTERS[cluster]))
        for kind, what in events:
            stream.play(kind, what)
            check(stream.state)

    run.__name__ = own_name(name, cluster)
    most = examples(SLOW_EXAMPLES if slow else EXAMPLES)
    settings(max_examples=most)(given(streams(SLOW_LARGEST if slow else LARGEST))(run))()


Fault = type[MachineFailed] | type[MachineDrained] | type[MachineRepaired]


class Story(NamedTuple):
    """What happens in a replay."""

    jobs: list[Job]
    faults: list[tuple[float, Event]]
    network: str


@st.composite
def stories(draw: st.DrawFn, largest: int, machines: int) -> Story:
    """Jobs that come and end while machines fail, are drained and come back, or do not."""
    came: list[Job] = []
    now_s = 0.0
    for number, wanted in enumerate(draw(st.lists(jobs(largest), min_size=4, max_size=12))):
        now_s += draw(st.sampled_from([0.0, 10.0, 200.0]))
        duration_s = draw(st.sampled_from([0.0, 50.0, 900.0]))
        job = Job(f"j{number}", submit_s=now_s, duration_s=duration_s, **wanted._asdict())
        if job.dp == job.gpus and draw(st.booleans()):
            job = replace(job, least_gpus=-(-job.gpus // 2), most_gpus=job.gpus + 2)
        came.append(job)
    times = st.sampled_from([0.0, 0.0, 15.0, 300.0, 700.0])
    kinds: st.SearchStrategy[Fault] = st.sampled_from((MachineFailed, MachineDrained, MachineRepaired))
    happened = draw(st.lists(st.tuples(times, kinds, st.integers(0, machines - 1)), max_size=5))
    faults: list[tuple[float, Event]] = [(at_s, kind(machine)) for at_s, kind, machine in happened]
    return Story(came, faults, draw(st.sampled_from(["instant", "steady", "steady"])))


class Watched(Replay):
    """A replay whose books are checked after every decision."""

    def _apply(self, actions: Sequence[Action], now_s: float) -> None:
        check(self.state)
        super()._apply(actions, now_s)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", POLICIES)
def test_no_replay_ends_with_an_error_or_loses_a_job(name: str, cluster: str) -> None:
    tree = CLUSTERS[cluster]

    def run(story: Story) -> None:
        model = NETWORKS[story.network]
        _, chosen, _ = resolve_policy(name, None, None, 0, model.alone)
        replay = Watched(
            tree, chosen, network=model.on(tree), machine_events=story.faults, period_s=decision_period_s(name)
        )
        record = replay.run(story.jobs)
        check(replay.state)
        assert not replay.state.running
        status = dict(zip(record.jobs["job_id"], record.jobs["status"], strict=True))
        assert status.keys() == {job.id for job in story.jobs}
        empty = ClusterState(tree).snapshot()
        for job in story.jobs:
            if empty.available(job).gpus < (job.least_gpus or job.gpus):
                assert status[job.id] != DONE
            elif not story.faults and isinstance(chosen, QueuePolicy) and make(name).place(job, empty) is not None:
                assert status[job.id] == DONE

    run.__name__ = own_name(name, cluster)
    drawn = stories(SLOW_LARGEST if name == "exact" else LARGEST, len(tree.machines))
    settings(max_examples=examples(REPLAYS))(given(drawn)(run))()
