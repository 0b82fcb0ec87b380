"""What must hold for the policy `cranny` whatever it decides.

The tests of all policies check its books after every decision (`tests/core/test_random_streams.py`), that no GPU
has two jobs and no job is lost (`tests/sim/test_simulate.py`), and that the service survives it
(`tests/service/test_robust.py`). Those leave out that jobs end, for policies that plan for all jobs at once.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.constrained_placer import ConstrainedPlacer
from cranny.core.constraints import Constraints, SameRack
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, mask_of
from cranny.model.collective import COLLECTIVES
from cranny.model.event import Event, MachineDrained, MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action
from cranny.network.networks import NETWORKS
from cranny.policies.cranny import Cranny
from cranny.policy_choice import decision_period_s, resolve_policy, seeded_policy
from cranny.run import simulate
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler
from cranny.sim.record import DONE
from cranny.sim.replay import Replay
from cranny.traces.generate import generate_trace

CLUSTER = Cluster.fat_tree(2, 3, 4, oversubscription=4, pat_gbps=200)
MACHINES = len(CLUSTER.machines)
MODELS = ("resnet50", "vgg16", "gpt2")
NAMES = ("isolated", "steady")  # networks


class Watched(Replay):
    """A replay whose books are checked after every decision."""

    def _apply(self, actions: Sequence[Action], now_s: float) -> None:
        check(self.state)
        super()._apply(actions, now_s)


@st.composite
def jobs(draw: st.DrawFn, most: int = 14) -> list[Job]:
    """Jobs of all sizes that fit the cluster, many of them at once."""
    came: list[Job] = []
    now_s = 0.0
    for number in range(draw(st.integers(3, most))):
        now_s += draw(st.sampled_from([0.0, 0.0, 5.0, 120.0, 2000.0]))
        came.append(
            Job(
                f"job-{number}",
                draw(st.sampled_from([1, 1, 2, 3, 4, 5, 8, 12, 20, 24])),
                draw(st.sampled_from(MODELS)),
                draw(st.sampled_from(COLLECTIVES)),
                submit_s=now_s,
                duration_s=draw(st.sampled_from([1.0, 60.0, 600.0, 7200.0])),
                restart_s=draw(st.sampled_from([0.0, 60.0])),
            )
        )
    return came


@st.composite
def faults(draw: st.DrawFn) -> list[tuple[float, Event]]:
    """Machines that fail or are drained, all of which come back."""
    events: list[tuple[float, Event]] = []
    for machine in draw(st.sets(st.integers(0, MACHINES - 1), min_size=1)):
        kinds: st.SearchStrategy[type[MachineFailed | MachineDrained]] = st.sampled_from(
            (MachineFailed, MachineDrained)
        )
        kind = draw(kinds)
        down_s = draw(st.sampled_from([0.0, 50.0, 700.0, 3000.0]))
        up_s = down_s + draw(st.sampled_from([10.0, 5000.0]))
        events += [(down_s, kind(machine)), (up_s, MachineRepaired(machine))]
    return events


def replayed(came: Sequence[Job], network: str, events: Sequence[tuple[float, Event]] = ()) -> Watched:
    """Replay jobs; see that all of them end, and that nothing is held or waits then."""
    model = NETWORKS[network]
    _, chosen, _ = resolve_policy("cranny", None, None, 0, model.alone)
    period_s = decision_period_s("cranny")
    replay = Watched(CLUSTER, chosen, network=model.on(CLUSTER), machine_events=events, period_s=period_s)
    record = replay.run(came)
    status = dict(zip(record.jobs["job_id"], record.jobs["status"], strict=True))
    assert status == dict.fromkeys([job.id for job in came], DONE)
    check(replay.state)
    assert replay.state.free.tolist() == [machine.gpus for machine in CLUSTER.machines]
    assert not replay.state.running
    assert not replay.engine.queue
    return replay


@settings(max_examples=examples(60))
@given(jobs(), st.sampled_from(NAMES))
def test_all_jobs_end_and_all_gpus_come_back(came: list[Job], network: str) -> None:
    replayed(came, network)


@settings(max_examples=examples(60))
@given(jobs(), faults(), st.sampled_from(NAMES))
def test_all_jobs_end_though_machines_fail_and_are_drained_for_a_while(
    came: list[Job], events: list[tuple[float, Event]], network: str
) -> None:
    replayed(came, network, events)


class Restless(Cranny):
    """The policy as it is when it is asked at every event, also while no job waits."""

    @property
    def at_rest(self) -> bool:
        return False


@settings(max_examples=examples(60))
@given(jobs(), st.just([]) | faults(), st.sampled_from(NAMES))
def test_it_decides_the_same_if_it_is_asked_while_no_job_waits(
    came: list[Job], events: list[tuple[float, Event]], network: str
) -> None:
    first, other = (
        Replay(CLUSTER, policy, network=NETWORKS[network].on(CLUSTER), machine_events=events).run(came)
        for policy in (Cranny(), Restless())
    )
    assert first.jobs.equals(other.jobs)
    assert (first.samples == other.samples).all()


@pytest.mark.parametrize("preset", ["philly", "itp", "acme"])
def test_all_jobs_of_a_trace_end_under_load(preset: str) -> None:
    trace = generate_trace(preset, 300, seed=1, load=1.1, gpus=CLUSTER.gpus)
    assert simulate(CLUSTER, trace, "cranny").summary["jobs_done"] == 300


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_a_large_job_is_not_passed_for_ever(gpus: int) -> None:
    """Jobs keep coming that are smaller, and never leave all GPUs free by themselves."""
    cluster = Cluster.fat_tree(2, 1, 4)
    small = [Job(f"small-{i}", gpus, submit_s=2.6 * gpus * i, duration_s=20.0) for i in range(2400 // gpus)]
    large = Job("large", 8, "resnet50", submit_s=30.0, duration_s=20.0)
    rows = simulate(cluster, sorted([*small, large], key=lambda job: job.submit_s), "cranny").jobs
    waited_s = rows.row(by_predicate=pl.col("job_id") == "large", named=True)["wait_s"]
    assert waited_s < small[-1].submit_s / 2


@pytest.mark.parametrize("network", NAMES)
def test_the_same_seed_gives_the_same_bytes(network: str) -> None:
    trace = generate_trace("philly", 200, seed=3, load=1.0, gpus=CLUSTER.gpus)
    first, again = (simulate(CLUSTER, trace, "cranny", network, seed=5) for _ in range(2))
    assert first.jobs.equals(again.jobs)
    assert first.runs.equals(again.runs)
    assert first.timeline.equals(again.timeline)
    assert first.summary == again.summary


ELSEWHERE = """
import cranny
cluster = cranny.Cluster.fat_tree(2, 3, 4, oversubscription=4, pat_gbps=200)
trace = cranny.generate_trace("philly", 120, seed=3, load=1.0, gpus=cluster.gpus)
print(cranny.simulate(cluster, trace, "cranny").runs.rows())
"""


def test_the_order_of_hashed_sets_decides_nothing() -> None:
    """Another process hashes strings otherwise."""
    trace = generate_trace("philly", 120, seed=3, load=1.0, gpus=CLUSTER.gpus)
    here = simulate(CLUSTER, trace, "cranny").runs.rows()
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", ELSEWHERE]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told == f"{here}\n"


@settings(max_examples=examples(80))
@given(
    st.lists(st.integers(0, 4), min_size=MACHINES, max_size=MACHINES),
    st.sampled_from([2, 3, 4, 5, 6, 8]),
    st.sets(st.integers(0, MACHINES - 1), max_size=3),
    st.sampled_from([None, "required", "preferred"]),
    st.sampled_from(["ring", "halving-doubling", "ina"]),
)
def test_constraints_hold(
    held: list[int], gpus: int, excluded: set[int], same_rack: SameRack | None, collective: str
) -> None:
    state = ClusterState(CLUSTER)
    for machine, taken in enumerate(held):
        if taken:
            state.place(Job(f"on-{machine}", taken, duration_s=100.0), Placement((machine,) * taken))
    view = state.snapshot()
    constraints = Constraints(mask_of(excluded), same_rack)
    job = Job("new", gpus, "vgg16", collective, duration_s=100.0)
    placement = ConstrainedPlacer(seeded_policy("cranny", 0), lambda _: constraints).place(job, view)
    free = [0 if machine in excluded else int(view.free_on(machine)) for machine in range(MACHINES)]
    in_racks = [sum(free[slice(*span)]) for span in CLUSTER.rack_spans]
    fits_a_rack = max(in_racks) >= gpus
    if placement is None:
        assert sum(free) < gpus or (same_rack == "required" and not fits_a_rack)
        return
    server = set() if placement.server is None else {placement.server}
    used = placement.counts.keys() | server
    assert not used & excluded
    if same_rack == "required" or (same_rack == "preferred" and fits_a_rack):
        assert len({CLUSTER.rack_of[machine] for machine in used}) == 1
    state.place(job, placement)
    check(state)


def test_the_service_keeps_constraints_under_it() -> None:
    scheduler = Scheduler(CLUSTER, "run", Limits())
    scheduler.open(0.0)
    scheduler.set_policy({"name": "cranny"}, "root", 0.0)
    name = CLUSTER.machines[0].name
    for number in range(3):
        spec = {"command": ["true"], "gpus": 6, "constraints": {"same_rack": "required", "exclude": [name]}}
        scheduler.submit("ann", spec, f"key-{number}", float(number))
    racks = [
        {CLUSTER.rack_of[machine] for machine in running.placement.machines}
        for running in scheduler.engine.state.running.values()
    ]
    assert racks
    assert all(len(each) == 1 for each in racks)
    assert scheduler.engine.state.snapshot().is_idle(0)


def test_a_job_that_was_stopped_goes_on_with_what_it_had_done() -> None:
    came = [replace(Job(f"long-{i}", 4, duration_s=50_000.0), restart_s=60.0) for i in range(MACHINES)]
    came += [Job(f"short-{i}", 4, submit_s=1000.0 + i, duration_s=30.0) for i in range(4)]
    record = replayed(came, "isolated").log
    for each in record.done:
        ran_s = each.finish_s - (each.first_start_s or 0.0)
        least_s = (each.job.duration_s or 0.0) + each.stops * each.job.restart_s
        assert ran_s >= least_s * (1 - 1e-9)
        assert ran_s <= least_s + each.stops * (each.job.duration_s or 0.0) + 1e-6
