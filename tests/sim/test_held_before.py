"""Jobs that run when a replay begins go on where they were, under every policy, and moving them has its price."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.test_fast_replay import COMPILED, HUGE, SMALL, WIDE, assert_equal, first_choices, traces

import cranny
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan
from cranny.network.networks import Isolated
from cranny.policies import TABLE, policy
from cranny.policies.best_fit import BestFit
from cranny.sim.fast.fast_replay import CompiledReplay
from cranny.sim.held_before import HeldBefore, placed_before
from cranny.sim.replay import Replay
from cranny.traces.trace import Trace

NAMES = [machine.name for machine in SMALL.machines]  # four of four GPUs


def job(name: str, gpus: int = 2, submit_s: float = 0.0, duration_s: float = 100.0, **more: object) -> Job:
    return Job(name, gpus, "resnet50", "ring", submit_s, duration_s, **more)  # type: ignore[arg-type]


def runs_of(result: cranny.Result, name: str) -> list[tuple[object, ...]]:
    return result.runs.filter(pl.col("job_id") == name).select("start_s", "end_s", "machine").rows()


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"exact"}))
def test_every_policy_leaves_them_where_they_were(name: str) -> None:
    jobs = [job("a"), job("b"), job("new", 4), job("later", 4, 50.0)]
    held = {"a": {NAMES[3]: 1, NAMES[2]: 1}, "b": {NAMES[1]: 2}}
    result = cranny.simulate(SMALL, jobs, name, "instant", held_before=held)
    first = result.runs.filter(pl.col("start_s") == 0.0)
    where = {each: first.filter(pl.col("job_id") == each)["machine"].to_list() for each in ("a", "b")}
    assert where == {"a": [3, 2], "b": [1]}
    assert result.summary["jobs_done"] == 4
    assert dict(result.jobs.select("job_id", "wait_s").iter_rows())["a"] == 0.0


def test_a_replay_in_which_only_such_jobs_arrive_at_first_is_measured_from_there() -> None:
    result = cranny.simulate(
        SMALL, [job("a"), job("b", submit_s=60.0)], "best-fit", held_before={"a": {NAMES[2]: 2}}
    )
    assert result.timeline["time_s"].to_list() == [0.0, 60.0]
    assert runs_of(result, "a") == [(0.0, 100.0, 2)]
    assert runs_of(result, "b") == [(60.0, 160.0, 2)]  # best fit joins it


@pytest.mark.parametrize(
    ("held", "more"),
    [
        ({"gone": 2}, {}),
        ({NAMES[0]: 1}, {}),  # another number than it asks for
        ({NAMES[0]: 5}, {"gpus": 5}),  # more than the machine has
        ({NAMES[0]: 2}, {"gpu_type": "a100"}),
    ],
)
def test_what_cannot_have_been_is_left_to_the_policy(held: dict[str, int], more: dict[str, object]) -> None:
    assert placed_before(SMALL, {"a": held}, [job("a", **{"gpus": 2, **more})]) == {}  # type: ignore[arg-type]


def test_of_jobs_that_hold_the_same_gpus_the_first_has_them() -> None:
    jobs = [job("a", 3), job("b", 3), job("c", 1)]
    held = {each.id: {NAMES[0]: each.gpus} for each in jobs}
    assert placed_before(SMALL, held, jobs) == {"a": Placement((0, 0, 0)), "c": Placement((0,))}


class MovesAtOnce(BestFit):
    """Moves the first job to the first machine as soon as it is asked."""

    order = "fifo"

    def key(self, waiting: object) -> float:  # noqa: ARG002 - all alike
        return 0.0

    def plan(self, view: Snapshot) -> Plan:
        running = view.running.get("a")
        if running is not None and running.placement.machines != (0, 0):
            return Plan(view.version, (Move("a", Placement((0, 0))),))
        return QueuePolicy(BestFit()).plan(view)


@pytest.mark.parametrize(("before", "end_s"), [(True, 130.0), (False, 100.0)])
def test_to_move_one_costs_a_restart_at_the_begin_already(before: bool, end_s: float) -> None:  # noqa: FBT001
    jobs = [job("a", restart_s=30.0), job("b")]
    held: HeldBefore = {"a": {NAMES[2]: 2}} if before else {}
    result = cranny.simulate(SMALL, jobs, MovesAtOnce(), "instant", held_before=held)
    assert runs_of(result, "a")[-1] == (0.0, end_s, 0)
    assert result.summary["moves"] == int(before)


@st.composite
def held_of(draw: st.DrawFn, trace: Trace, cluster: Cluster) -> HeldBefore:
    """Draw machines for some of the first jobs, whether they have room or not."""
    first = trace.frame.filter(pl.col("submit_s") == trace.frame["submit_s"][0])
    held: dict[str, dict[str, int]] = {}
    for job_id, gpus in first.select("job_id", "gpus").iter_rows():
        if gpus <= cluster.gpus and draw(st.booleans()):
            places = draw(st.permutations(range(len(cluster.machines))))
            counts: dict[str, int] = {}
            for place in places:
                left = gpus - sum(counts.values())
                if left:
                    counts[cluster.machines[place].name] = min(left, draw(st.integers(1, 4)))
            held[job_id] = counts
    return held


@pytest.mark.parametrize("name", COMPILED)
@settings(max_examples=examples(30))
@given(cluster=st.sampled_from([SMALL, WIDE]), trace=traces(), data=st.data())
def test_a_compiled_replay_does_the_same(name: str, cluster: Cluster, trace: Trace, data: st.DataObject) -> None:
    held = data.draw(held_of(trace, cluster))
    jobs = trace.jobs(profiles=HUGE)
    fast = CompiledReplay(cluster, first_choices(name), isolated, held).run(jobs)
    plain = Replay(cluster, QueuePolicy(policy(name)), network=Isolated(isolated), held_before=held).run(jobs)
    assert_equal(fast, plain)
