"""Shifts of the policy `cranny`: what they gain, and that they never cost anything."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.accounting import Running
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Plan, Shift
from cranny.model.profile import ModelProfile
from cranny.network.networks import NETWORKS
from cranny.network.phases.phases_network import Phases
from cranny.policies.cranny.shifting import PhasedLinks
from cranny.policies.cranny.tail import WEIGHT, CompletionTimes, Tail
from cranny.policy_choice import resolve_policy
from cranny.run import Result, simulate
from cranny.sim.record import DONE
from cranny.sim.replay import Replay
from cranny.traces.generate import generate_trace

GBPS = 50.0
PAIRS = Cluster.fat_tree(3, 2, 1, GBPS, oversubscription=2.0)  # three switches with two machines of one GPU each
MODELS = ("resnet50", "vgg16", "bert-base", "gpt2")


def half_duty(gpus: int) -> ModelProfile:
    """Return a model that computes for 100 ms and then sends for as long, on so many machines."""
    sent = 2 * (gpus - 1) / gpus  # of the gradients, by every rank of a ring
    return ModelProfile(name="half", grad_bytes=0.1 * GBPS * 1e9 / 8 / sent, iteration_ms=100.0)


def two_jobs(*, shift: bool) -> Result:
    """Run two jobs of three machines each, which share the uplink of the switch in the middle."""
    came = [Job(name, 3, half_duty(3), "ring", duration_s=100.0) for name in ("a", "b")]
    return simulate(PAIRS, came, "cranny", "phases", options={"shift": shift})


def test_two_jobs_that_send_half_of_the_time_interleave() -> None:
    with_shifts, without = two_jobs(shift=True), two_jobs(shift=False)
    assert with_shifts.jobs["jct_s"].to_list() == pytest.approx([200.0, 200.0], rel=0.01)  # as if alone
    assert without.jobs["jct_s"].to_list() == pytest.approx([300.0, 300.0], rel=0.01)  # each has half of the link


def test_a_job_joins_those_that_it_can_interleave_with() -> None:
    """Of two switches with room, that of a job with the same iteration time is as good as one without jobs."""
    links = PhasedLinks(PAIRS)
    state = ClusterState(PAIRS)
    links.start(started(state, Job("a", 2, half_duty(2), "ring"), (0, 2)), 1000.0)
    state.commit(Plan(state.version, tuple(links.shifts())), 0.0)
    view = state.snapshot(0.0, ())
    fits, clashes = (Job("b", 2, profile, "ring") for profile in (half_duty(2), half_duty(2).stretched(0.3)))
    in_turn, not_in_turn = (
        links.effect(view.as_running(job, Placement((1, 4))), 100.0) for job in (fits, clashes)
    )
    assert in_turn.slowdown == pytest.approx(links.alone(fits, Placement((1, 4))), rel=0.01)
    assert in_turn.others_gpu_s == pytest.approx(0.0, abs=2.0)
    assert not_in_turn.slowdown > 1.05 * links.alone(clashes, Placement((1, 4)))


def test_what_a_job_in_the_tail_loses_counts_more() -> None:
    lost = []
    for tail_s in (math.inf, 10.0):
        links = PhasedLinks(PAIRS, Tail(CompletionTimes(tail_s), 100))
        state = ClusterState(PAIRS)
        links.start(started(state, Job("a", 2, half_duty(2), "ring"), (0, 2)), 1000.0)
        clashes = Job("b", 2, half_duty(2).stretched(0.3), "ring")
        lost.append(
            links.effect(state.snapshot(0.0, ()).as_running(clashes, Placement((1, 4))), 100.0).others_gpu_s
        )
    assert lost[0] > 1.0
    assert lost[1] == pytest.approx(WEIGHT * lost[0])


# -- never worse ------------------------------------------------------------------------------------------

RACKS = Cluster.fat_tree(4, 3, 1, GBPS, oversubscription=3.0)


ANY = 1e-5  # by how much a group may be slower than without any shift


class Placed(NamedTuple):
    """A job that starts on certain machines at a certain time."""

    at_s: float
    job: Job
    machines: tuple[int, ...]


@st.composite
def placed_jobs(draw: st.DrawFn) -> list[Placed]:
    """Jobs on any free machines of the racks."""
    order = draw(st.permutations(range(len(RACKS.machines))))
    found: list[Placed] = []
    at_s = 0.0
    for number in range(draw(st.integers(2, 5))):
        gpus = min(draw(st.integers(2, 4)), len(order))
        if gpus < 2:
            break
        machines, order = tuple(sorted(order[:gpus])), order[gpus:]
        at_s += draw(st.sampled_from([0.0, 0.05, 7.3]))
        model = half_duty(gpus).stretched(draw(st.sampled_from([0.5, 1.0, 1.0, 1.37, 2.0])))
        profile = draw(st.sampled_from([model, model, None]))
        found.append(Placed(at_s, Job(f"job-{number}", gpus, profile or "vgg16", "ring"), machines))
    return found


def started(state: ClusterState, job: Job, machines: tuple[int, ...], at_s: float = 0.0) -> Running:
    """Start a job."""
    state.place(job, Placement(machines), at_s)
    return state.find(job.id)


class Twins:
    """The same jobs in two networks: one that follows shifts, and one without any."""

    def __init__(self) -> None:
        self.state = ClusterState(RACKS)
        self.links = PhasedLinks(RACKS)
        self.shifted, self.free = Phases(RACKS), Phases(RACKS)

    def start(self, placed: Placed) -> None:
        """Start a job in both, and shift."""
        running = started(self.state, placed.job, placed.machines, placed.at_s)
        self.links.start(running, placed.at_s + 1000.0)
        for network in (self.shifted, self.free):
            list(network.start(running))
        self._shift(placed.at_s)

    def end(self, job_id: str, at_s: float) -> None:
        """End a job in both, and shift."""
        self.state.release(job_id)
        self.links.end(job_id)
        for network in (self.shifted, self.free):
            list(network.end(job_id))
        self._shift(at_s)

    def _shift(self, at_s: float) -> None:
        before = self.time(self.shifted)
        for _ in range(3):
            shifts = self.links.shifts()
            self.state.commit(Plan(self.state.version, tuple(shifts)), at_s)
            running = [self.state.find(each.job_id) for each in shifts]
            for each in running:
                self.links.end(each.job.id)
                self.links.start(each, at_s + 1000.0)
            list(self.shifted.shift(running))
        assert not self.links.shifts()  # it has come to an end
        assert self.time(self.shifted) <= before * (1 + 1e-9)
        assert self.time(self.shifted) <= self.time(self.free) * (1 + ANY)

    def time(self, network: Phases) -> float:
        """Return what iterations of all jobs take, each in those alone, times GPUs."""
        return sum(
            len(self.state.find(job_id).placement.machines)
            * outcome.mean_s
            / next(iter(links.values())).iteration_s
            for job_id, outcome in network.outcomes.items()
            for links in [network._links.jobs[job_id].circles]
        )


@settings(max_examples=examples(40))
@given(placed_jobs(), st.data())
def test_no_group_is_slower_than_without_shifts(placed: list[Placed], data: st.DataObject) -> None:
    """Jobs start one after the other and end in any order; in the network itself, not in what is predicted."""
    twins = Twins()
    for each in placed:
        twins.start(each)
    at_s = placed[-1].at_s
    for job_id in data.draw(st.permutations([each.job.id for each in placed]))[:-1]:
        at_s += 11.0
        twins.end(job_id, at_s)


# -- in whole replays -------------------------------------------------------------------------------------


class Watched(Replay):
    """A replay whose books are checked after every decision, and which counts shifts."""

    shifts = 0

    def _apply(self, actions: Sequence[Action], now_s: float) -> None:
        check(self.state)
        running = self.state.running
        for action in actions:
            if isinstance(action, Shift):
                assert running[action.job_id].shift_s == action.shift_s > 0
                self.shifts += 1
        super()._apply(actions, now_s)


def drawn(seed: int, *, elastic: bool) -> list[Job]:
    """Draw jobs that share links."""
    rng = np.random.default_rng(seed)
    return [
        Job(
            f"job-{number}",
            gpus := int(rng.integers(1, 5)),
            str(rng.choice(MODELS)),
            "ring",
            submit_s=float(5 * number),
            duration_s=float(rng.integers(20, 200)),
            least_gpus=max(1, gpus // 2) if elastic else None,
            restart_s=10.0,
        )
        for number in range(12)
    ]


@pytest.mark.parametrize("elastic", [False, True])
def test_only_running_jobs_are_shifted_and_all_jobs_end(*, elastic: bool) -> None:
    model, shifts = NETWORKS["phases"], 0
    for seed in range(6):
        _, chosen, _ = resolve_policy("cranny", None, None, 0, model.alone)
        replay = Watched(PAIRS, chosen, network=model.on(PAIRS))
        record = replay.run(drawn(seed, elastic=elastic))
        assert set(record.jobs["status"]) == {DONE}
        shifts += replay.shifts
    assert shifts


@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "phases"])
def test_other_networks_see_no_shifts(network: str) -> None:
    cluster = Cluster.fat_tree(2, 3, 4, oversubscription=4)
    trace = generate_trace("philly", 200, seed=3, load=1.0, gpus=cluster.gpus)
    on, off = (simulate(cluster, trace, "cranny", network, options={"shift": shift}) for shift in (True, False))
    assert on.jobs.equals(off.jobs)
    assert on.runs.equals(off.runs)
    assert on.timeline.equals(off.timeline)


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again = (simulate(PAIRS, drawn(1, elastic=False), "cranny", "phases") for _ in range(2))
    assert first.jobs.equals(again.jobs)
    assert first.runs.equals(again.runs)
