"""HAS, JPS and their likes as policies: resets, moving costs, limits, and who waits."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

import cranny
from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.event import Event, MachineDrained, MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan
from cranny.model.profile import ModelProfile
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.instance import Instance
from cranny.policies._shared.heterogeneous.min_max_workers import within
from cranny.policies._shared.heterogeneous.sharing_policy import SharingPolicy
from cranny.policies._shared.resize import feasible_order
from cranny.policies.has import Has, HasExact, HasResets, Jps, Las
from cranny.policies.optimus import OptimusLb, OptimusShares

METHODS: tuple[type[SharingPolicy], ...] = (Has, Jps, HasExact, HasResets, OptimusShares, OptimusLb, Las)
QUIET = ModelProfile("quiet", grad_bytes=1.0, iteration_ms=100.0)
NEVER = 1e6  # a margin that no move reaches


def mixed(*machines: tuple[str, int], link_gbps: float = 100.0) -> Cluster:
    """Build a cluster of machines with a type and a number of GPUs."""
    made = tuple(Machine(f"m{at}", gpus, gpu_type) for at, (gpu_type, gpus) in enumerate(machines))
    return Cluster.of(Switch("core", made, (link_gbps,) * len(made)))


def elastic(name: str, **fields: Any) -> Job:
    given = {"gpus": 1, "model": QUIET, "duration_s": 100.0, "least_gpus": 1, "most_gpus": 64, **fields}
    return Job(name, **given)


def example() -> tuple[Cluster, list[Job]]:
    """Return the motivating example of the paper: two T4, two V100, ResNet-18 and VGG-19."""
    resnet, vgg = (ModelProfile(f"batch-{batch}", 1.0, iteration_ms=1000.0, batch=batch) for batch in (275, 884))
    jobs = [
        elastic("resnet", model=resnet, duration_s=200 * 100_000 / 275, speeds={"T4": 1.0, "V100": 644 / 275}),
        elastic("vgg", model=vgg, duration_s=200 * 50_000 / 884, speeds={"T4": 1.0, "V100": 1754 / 884}),
    ]
    return mixed(("T4", 2), ("V100", 2)), jobs


def by_id(result: Any, column: str) -> dict[str, Any]:
    return dict(result.jobs.select("job_id", column).iter_rows())


# -- the motivating example -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "mean_jct_s"), [("las", 12_776.8), ("has", 11_225.8), ("jps", 11_225.8), ("has-exact", 10_592.0)]
)
def test_without_resets_the_simulator_gives_the_papers_numbers(policy: str, mean_jct_s: float) -> None:
    cluster, jobs = example()
    result = cranny.simulate(cluster, jobs, policy, network="instant", options={"margin": NEVER})
    assert result.summary["mean_jct_s"] == pytest.approx(mean_jct_s, abs=0.1)


def test_who_is_left_gets_everything_at_a_reset() -> None:
    cluster, jobs = example()
    result = cranny.simulate(cluster, jobs, "has-exact", network="instant")
    # VGG-19 on two T4 takes 5,656 s; then ResNet-18 goes on with all four.
    vgg_s = 200 * 50_000 / (2 * 884)
    resnet_s = vgg_s + (200 * 100_000 - vgg_s * 2 * 644) / (2 * 644 + 2 * 275)
    assert by_id(result, "finish_s") == pytest.approx({"vgg": vgg_s, "resnet": resnet_s})
    assert by_id(result, "moves") == {"vgg": 0, "resnet": 1}
    assert result.summary["moves"] == 1
    assert result.summary["restarts"] == 0


@pytest.mark.parametrize(("restart_s", "moves"), [(1_000.0, 1), (4_000.0, 0)])
def test_a_job_moves_only_if_that_pays(restart_s: float, moves: int) -> None:
    cluster, (resnet, _) = example()
    late = elastic("resnet", duration_s=resnet.duration_s, speeds=resnet.speeds, restart_s=restart_s)
    # No job moves when ResNet-18 comes, for VGG-19 would not run elsewhere.
    first = Job("vgg", 2, QUIET, duration_s=5_000.0, speeds={"T4": 1.0})
    result = cranny.simulate(cluster, [first, late], "has-exact", network="instant")
    # With two V100 alone it takes 15,528 s; with all four after 5,000 s, 3,134 s less.
    assert by_id(result, "moves") == {"vgg": 0, "resnet": moves}
    alone_s = 200 * 100_000 / (2 * 644)
    moved_s = 5_000 + (200 * 100_000 - 5_000 * 2 * 644) / (2 * 644 + 2 * 275)
    assert by_id(result, "finish_s")["resnet"] == pytest.approx(moved_s + restart_s if moves else alone_s)


def test_small_gains_do_not_make_jobs_move() -> None:
    jobs = [Job("a", 1, QUIET, duration_s=100.0), elastic("b", duration_s=20_000.0, restart_s=1.0)]
    cluster = mixed(("", 64))
    moved = cranny.simulate(cluster, jobs, "has-exact", options={"margin": 0.0})
    stayed = cranny.simulate(cluster, jobs, "has-exact")
    # The 64th GPU saves b 1.5 % of what it has left, and costs a second.
    assert by_id(moved, "moves") == {"a": 0, "b": 1}
    assert by_id(stayed, "moves") == {"a": 0, "b": 0}


# -- who shares, who waits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_job_that_cannot_be_resized_gets_what_it_asks_for(method: type[SharingPolicy]) -> None:
    jobs = [elastic("a", duration_s=1_000.0), Job("b", 3, QUIET, submit_s=10.0, duration_s=50.0)]
    result = cranny.simulate(mixed(("", 4)), jobs, method())
    runs = [(row[0], row[1], row[4].bit_count()) for row in result.runs.sort("start_s", "job_id").rows()]
    # a has everything, makes room for b, and takes everything back.
    assert runs == [("a", 0.0, 4), ("a", 10.0, 1), ("b", 10.0, 3), ("a", 60.0, 4)]


def test_with_more_jobs_than_workers_the_last_wait() -> None:
    jobs = [elastic(name, submit_s=float(at), duration_s=100.0 + at) for at, name in enumerate("abcd")]
    result = cranny.simulate(mixed(("", 2)), jobs, "has-exact")
    waits = by_id(result, "wait_s")
    assert waits["a"] == waits["b"] == 0
    assert 0 < waits["c"] < waits["d"]


def test_a_small_job_does_not_pass_a_large_one_that_waits() -> None:
    jobs = [
        Job("first", 2, QUIET, duration_s=100.0),
        Job("large", 4, QUIET, submit_s=1.0, duration_s=10.0),
        elastic("small", submit_s=2.0, duration_s=10.0),
    ]
    result = cranny.simulate(mixed(("", 4)), jobs, "has")
    assert by_id(result, "start_s") == {"first": 0.0, "large": 100.0, "small": 110.0}


def test_a_job_that_no_type_can_run_is_named_and_holds_up_no_other() -> None:
    jobs = [
        elastic("good", duration_s=100.0),
        elastic("bad", submit_s=1.0, speeds={"H100": 1.0}),
        elastic("later", submit_s=2.0),
    ]
    result = cranny.simulate(mixed(("T4", 2)), jobs, "has-exact")
    assert by_id(result, "status") == {"good": "done", "later": "done", "bad": "skipped"}
    assert by_id(result, "reason")["bad"] == "needs 1 H100 GPU, the cluster has 0"
    with pytest.raises(InputError, match="job 'bad' needs 1 H100 GPU, the cluster has 0"):
        cranny.simulate(mixed(("T4", 2)), [jobs[1]], "jps")


@pytest.mark.parametrize("name", ["has", "gavel"])
def test_too_few_workers_of_a_type_are_named(name: str) -> None:
    job = Job("big", 3, QUIET, duration_s=10.0, speeds={"V100": 1.0})
    with pytest.raises(InputError, match="job 'big' needs 3 V100 GPUs, the cluster has 2"):
        cranny.simulate(mixed(("T4", 4), ("V100", 2)), [job], name)


def test_has_says_when_there_are_too_many_categories() -> None:
    jobs = [elastic(f"j{at}", most_gpus=4096) for at in range(3)]
    with pytest.raises(InputError, match="categories of 4096 workers; use jps or has-exact"):
        cranny.simulate(mixed(*[("", 64)] * 64), jobs, "has")


def test_options_are_checked() -> None:
    for options in ({"elastic": 0.5}, {"margin": -1}, {"between_gbps": 0}, {"probe_error": 1}, {"restart_s": -1}):
        with pytest.raises(InputError, match=next(iter(options))):
            cranny.policy("has", **options)


# -- machines come and go -------------------------------------------------------------------------------------


def test_a_failure_is_a_reset() -> None:
    events: list[tuple[float, Event]] = [(40.0, MachineFailed(1)), (60.0, MachineRepaired(1))]
    result = cranny.simulate(
        mixed(("", 2), ("", 2)), [elastic("a", duration_s=400.0)], "has", machine_events=events, checkpoint_s=0.0
    )
    # 160 of 400 GPU-seconds with four, 40 with two, the rest with four.
    assert by_id(result, "finish_s") == pytest.approx({"a": 110.0}, rel=1e-3)
    assert by_id(result, "restarts") == {"a": 1}
    assert by_id(result, "moves") == {"a": 1}


def test_jobs_leave_a_machine_that_is_drained_if_that_pays() -> None:
    result = cranny.simulate(
        mixed(("T4", 2), ("V100", 2)),
        [
            Job("a", 2, QUIET, duration_s=100.0, speeds={"V100": 1.0}),
            elastic("b", duration_s=400.0, most_gpus=2, speeds={"T4": 0.5, "V100": 1.0}),
        ],
        "has-exact",
        machine_events=[(110.0, MachineDrained(0))],
    )
    machines = [row[3] for row in result.runs.filter(result.runs["job_id"] == "b").sort("start_s").rows()]
    assert machines == [0, 1]


@pytest.mark.parametrize("name", ["has-exact", "jps", "las", "gavel"])
def test_nothing_is_lost_when_machines_come_and_go(name: str) -> None:
    wanted = st.tuples(st.integers(0, 300), st.integers(1, 4), st.integers(1, 900), st.booleans())
    mishap = st.tuples(
        st.floats(0, 1_000), st.sampled_from([MachineFailed, MachineDrained, MachineRepaired]), st.integers(0, 2)
    )

    @settings(max_examples=15)
    @given(st.lists(wanted, min_size=1, max_size=8), st.lists(mishap, max_size=4))
    def run(drawn: list[tuple[int, int, int, bool]], mishaps: list[tuple[float, type, int]]) -> None:
        jobs = [
            Job(
                f"j{at}",
                gpus,
                QUIET,
                submit_s=float(submit_s),
                duration_s=float(duration_s),
                least_gpus=1 if can else None,
                most_gpus=2 * gpus if can else None,
                speeds={"T4": 0.5, "V100": 1.0},
                restart_s=5.0,
            )
            for at, (submit_s, gpus, duration_s, can) in enumerate(sorted(drawn))
        ]
        events = sorted(((at_s, kind(at)) for at_s, kind, at in mishaps), key=lambda pair: pair[0])
        cluster = mixed(("T4", 3), ("V100", 3), ("V100", 2), link_gbps=10.0)
        result = cranny.simulate(cluster, jobs, name, machine_events=events, checkpoint_s=60.0)
        assert sorted(result.jobs["job_id"]) == sorted(job.id for job in jobs)
        held: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for _, start_s, end_s, machine, gpus in result.runs.rows():
            for gpu in range(4):
                if gpus >> gpu & 1:
                    held.setdefault((machine, gpu), []).append((start_s, end_s))
        for stretches in held.values():
            assert all(second[0] >= first[1] for first, second in pairwise(sorted(stretches)))
        if not events:
            assert result.summary["jobs_done"] == len(jobs)

    run()


# -- shares within limits -------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(st.data())
def test_shares_keep_to_the_limits_of_jobs(data: st.DataObject) -> None:
    kinds = ("T4", "V100")
    machines = data.draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 4)), min_size=1, max_size=4))
    cluster = mixed(*machines, link_gbps=10.0)
    jobs = []
    for at in range(data.draw(st.integers(1, 4))):
        gpus = data.draw(st.integers(1, 3))
        least = data.draw(st.integers(1, gpus))
        most = data.draw(st.integers(gpus, 6))
        speeds = {kind: data.draw(st.floats(0.2, 3.0)) for kind in kinds if data.draw(st.booleans())} or None
        jobs.append(elastic(f"j{at}", gpus=gpus, least_gpus=least, most_gpus=most, speeds=speeds))
    jobs = [job for job in jobs if not job.speeds or set(job.speeds) & {kind for kind, _ in machines}]
    free = np.array([machine.gpus for machine in cluster.machines])
    instance = Instance.of(jobs, cluster, JobEstimates(), None, 0.0) if jobs else None
    if instance is None or not instance.fits_minimum(range(len(jobs)), free):
        return
    for method in METHODS:
        held = within(instance, method().solve, range(len(jobs)), free)
        assert (held.sum(axis=0) <= free).all()
        count = held.sum(axis=1)
        assert (count >= instance.least).all()
        assert (count <= instance.most).all()
        assert np.isfinite(instance.seconds(held)).all()


def test_hall_sees_that_types_are_short() -> None:
    cluster = mixed(("T4", 4), ("V100", 1))
    picky = [elastic(name, gpus=1, speeds={"V100": 1.0}) for name in "ab"]
    instance = Instance.of([*picky, elastic("c", gpus=3)], cluster, JobEstimates(), None, 0.0)
    free = np.array([4, 1])
    assert instance.fits_minimum([0, 2], free)
    assert not instance.fits_minimum([0, 1], free)


@settings(max_examples=examples(60))
@given(st.permutations(range(4)))
def test_jobs_can_change_places(order: list[int]) -> None:
    state = ClusterState(mixed(("", 2), ("", 2), ("", 2), ("", 2)))
    for at in range(4):
        state.place(elastic(f"j{at}", gpus=2), Placement((at, at)))
    view = state.snapshot(5.0)
    moves = {f"j{at}": Placement((to, to)) for at, to in enumerate(order) if at != to}
    actions = feasible_order(view, moves, ())
    del view
    state.commit(Plan(state.version, actions), 5.0)
    check(state)
    assert {job_id: running.placement.machines[0] for job_id, running in state.running.items()} == {
        f"j{at}": to for at, to in enumerate(order)
    }


# -- what a policy remembers ----------------------------------------------------------------------------------


class Watching(HasExact):
    """has-exact that writes down what it thinks is left."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.thought: list[tuple[float, str, float]] = []

    def plan(self, view: Snapshot) -> Plan:
        found = super().plan(view)
        self.thought += [
            (view.now_s, job_id, self.estimates.left_s(each.submitted)) for job_id, each in view.running.items()
        ]
        return found


def test_progress_is_known_when_no_other_job_uses_the_links() -> None:
    jobs = [
        elastic("a", duration_s=1_000.0, restart_s=7.0),
        elastic("b", submit_s=100.0, duration_s=300.0, restart_s=7.0),
        Job("c", 1, QUIET, submit_s=130.0, duration_s=20.0),
    ]
    policy = Watching()
    result = cranny.simulate(mixed(("", 4)), jobs, policy)
    finish_s = by_id(result, "finish_s")
    # a has four workers for 100 s, then two, and loses seven seconds; c comes and goes; then what b leaves.
    at_100 = [left_s for at_s, job_id, left_s in policy.thought if (at_s, job_id) == (100.0, "a")]
    assert at_100[0] == pytest.approx(1_000 - 4 * 100)
    last = max(at_s for at_s, job_id, _ in policy.thought if job_id == "a")
    left_s = [left_s for at_s, job_id, left_s in policy.thought if (at_s, job_id) == (last, "a")][-1]
    assert last < finish_s["a"]
    assert finish_s["a"] - last == pytest.approx(left_s / 4 + 7.0)  # moved to all four just then


def test_progress_is_known_of_a_job_that_is_moved_as_it_starts() -> None:
    jobs = [elastic("a", duration_s=1_000.0), elastic("b", duration_s=1_000.0)]
    jobs.append(Job("c", 2, QUIET, submit_s=50.0, duration_s=10.0))
    policy = Watching()
    cranny.simulate(mixed(("", 4)), jobs, policy)
    # a was alone with four workers for no time at all, then had two.
    assert next(left_s for at_s, job_id, left_s in policy.thought if (at_s, job_id) == (50.0, "a")) == 900.0


def test_a_wrong_estimate_gets_better_as_workers_report() -> None:
    estimates = JobEstimates(probe_error=0.3, rng=np.random.default_rng(1))
    job = elastic("a", speeds={"T4": 0.5, "V100": 2.0})
    first = estimates.speeds(job, ["T4", "V100", "H100"])
    assert first[2] is None
    assert first[0] != 0.5
    assert first[0] == pytest.approx(0.5, rel=0.3)
    for _ in range(30):
        estimates.report("a", "T4", 0.5)
    assert estimates.speeds(job, ["T4", "V100"]) == [pytest.approx(0.5, rel=1e-3), first[1]]
    changes = estimates.changes
    estimates.report("a", "T4", 0.5)
    assert estimates.changes == changes
    estimates.report("a", "T4", 5.0)
    assert estimates.changes == changes + 1


def test_a_report_is_a_reset() -> None:
    # Thought to be alike, but b turns out to be of no use on the slow machine.
    cluster = mixed(("T4", 1), ("V100", 1))
    state = ClusterState(cluster)
    policy = HasExact(margin=0.0)
    jobs = [elastic("a", speeds={"T4": 1.0, "V100": 1.0}), elastic("b", speeds={"T4": 1.0, "V100": 1.0})]
    state.place(jobs[0], Placement((1,)))
    state.place(jobs[1], Placement((0,)))
    assert not policy.plan(state.snapshot(1.0)).actions
    assert not policy.plan(state.snapshot(2.0)).actions
    policy.report("b", "T4", 0.1)
    assert policy.plan(state.snapshot(3.0)).actions


def test_wrong_probes_cost_little_and_the_same_seed_gives_the_same() -> None:
    cluster, jobs = example()
    found = [
        cranny.simulate(cluster, jobs, "jps", network="instant", seed=3, options={"probe_error": 0.2}).summary
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert found[0]["jobs_done"] == 2


# -- options and traces ---------------------------------------------------------------------------------------


def test_jobs_of_a_trace_that_does_not_say_can_be_made_elastic() -> None:
    jobs = [Job("a", 2, QUIET, duration_s=100.0), Job("b", 2, QUIET, tp=2, submit_s=500.0, duration_s=100.0)]
    result = cranny.simulate(mixed(("", 8)), jobs, "has-exact", options={"elastic": 3, "restart_s": 9})
    # a may have six workers; b is not data-parallel.
    assert by_id(result, "finish_s") == pytest.approx({"a": 100 / 3, "b": 600.0})


def test_a_trace_says_how_jobs_can_be_resized(tmp_path: Any) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(
        "job_id,submit_s,gpus,duration_s,model,least_gpus,most_gpus,restart_s,speeds\n"
        "a,0,2,100,resnet50,1,4,30,T4=0.5 V100=1\n"
        "b,0,1,100,resnet50,,,,\n"
    )
    trace = cranny.read_trace(file)
    first, second = trace.jobs()
    assert (first.least_gpus, first.most_gpus, first.restart_s) == (1, 4, 30.0)
    assert first.speeds == {"T4": 0.5, "V100": 1.0}
    assert (second.least_gpus, second.most_gpus, second.restart_s, second.speeds) == (None, None, 0.0, None)
    result = cranny.simulate(mixed(("T4", 4), ("V100", 4)), trace, "has-exact", network="instant")
    assert by_id(result, "finish_s")["a"] == pytest.approx(50.0)
    # A cluster without types leaves speeds aside.
    assert cranny.simulate(Cluster.single_rack(1, 8), trace, "has").summary["jobs_done"] == 2
    trace.write(tmp_path / "again.parquet")
    assert list(cranny.read_trace(tmp_path / "again.parquet").jobs()) == [first, second]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("least_gpus", "3", "least_gpus: must be at most gpus, not '?3"),
        ("most_gpus", "1", "most_gpus: must be at least gpus, not '?1"),
        ("most_gpus", "x", "most_gpus: must be a whole number"),
        ("restart_s", "-1", "restart_s: must be a number of seconds"),
        ("speeds", "fast", "speeds: must be like T4=0.43 V100=1, not 'fast'"),
    ],
)
def test_a_wrong_range_is_named_with_its_line(tmp_path: Any, column: str, value: str, message: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"job_id,submit_s,gpus,duration_s,{column}\na,0,2,100,\nb,0,2,100,{value}\n")
    with pytest.raises(InputError, match=f"jobs.csv:3: {message}"):
        cranny.read_trace(file)


def test_a_zero_speed_names_the_job(tmp_path: Any) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_s,gpus,duration_s,speeds\nb,0,2,100,T4=0\n")
    with pytest.raises(InputError, match="job 'b': speeds: T4 must be"):
        cranny.simulate(mixed(("T4", 4)), cranny.read_trace(file), "has")


# -- Gavel ----------------------------------------------------------------------------------------------------


def test_gavel_gives_each_job_one_type_a_round() -> None:
    jobs = [Job(name, 2, QUIET, duration_s=3_000.0, speeds={"T4": 0.5, "V100": 1.0}) for name in "ab"]
    cluster = mixed(("T4", 2), ("V100", 2))
    result = cranny.simulate(cluster, jobs, "gavel", network="instant")
    # Both spend as much time on the fast type: half a round each on average.
    finish_s = by_id(result, "finish_s")
    assert all(4_000 <= value <= 4_000 + 3 * 360 for value in finish_s.values())
    assert result.settings["period_s"] == 360.0
    assert {row[1] % 360 for row in result.runs.rows()} == {0.0}
    assert result.summary["moves"] >= 4


def test_gavel_lets_jobs_take_turns() -> None:
    jobs = [Job(name, 4, QUIET, duration_s=1_000.0) for name in "abc"]
    result = cranny.simulate(mixed(("", 4)), jobs, "gavel")
    assert max(by_id(result, "wait_s").values()) <= 3 * 360
    assert result.summary["restarts"] > 0
