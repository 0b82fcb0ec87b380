"""The compiled replay against the event loop that it stands for: equal to the last bit."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.test_simple_policies import state_with

from cranny import run
from cranny.core.fast import memo
from cranny.core.fast.memo import Memo
from cranny.core.protocol import FirstChoices, Slowdown
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import Communication, isolated
from cranny.model.arrays import Ints
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.collective import COLLECTIVES
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile, library
from cranny.network.networks import Isolated, instant
from cranny.policies import TABLE, policy
from cranny.policies.best_fit import BestFit
from cranny.policies.titan import Titan
from cranny.sim.fast import fast_replay, replay_arrays
from cranny.sim.fast.fast_replay import CompiledReplay, compiled_replay
from cranny.sim.record import SKIPPED, ReplayRecord
from cranny.sim.replay import Replay
from cranny.traces.generate import generate_trace
from cranny.traces.trace import Trace

COMPILED = sorted(
    name for name in TABLE if name not in ("exact", "random") and isinstance(policy(name), FirstChoices)
)
SMALL = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4, link_gbps=25, oversubscription=4)
# Too large for Titan's search: what it does when links are busy is compiled, too.
WIDE = Cluster.fat_tree(
    racks=9, machines_per_rack=4, gpus_per_machine=4, link_gbps=25, oversubscription=4, racks_per_pod=3
)


def rack(name: str, machines: int) -> Switch:
    return Switch(name, tuple(Machine(f"{name}-{at}", 4) for at in range(machines)), (25.0,) * machines)


# Machines alike, at different heights.
UNEVEN = Cluster.of(
    Switch(
        "top",
        (Machine("high", 4), rack("left", 3), Switch("pod", (rack("deep", 34), Machine("low", 4)), (100.0, 10.0))),
        (25.0, 40.0, 60.0),
    )
)


def typed_rack(name: str, *machines: tuple[str, int]) -> Switch:
    children = tuple(Machine(f"{name}-{at}", gpus, gpu_type) for at, (gpu_type, gpus) in enumerate(machines))
    return Switch(name, children, (25.0,) * len(machines))


def mixed(partitions: Mapping[str, Sequence[str]]) -> Cluster:
    """Three types of GPU, one of them on smaller machines, which share racks and so links."""
    racks = (
        typed_rack("r", ("a100", 4), ("a100", 4), ("v100", 4), ("t4", 2)),
        typed_rack("s", ("a100", 4), ("v100", 4), ("v100", 4), ("t4", 2), ("t4", 2)),
    )
    return Cluster.of(Switch("top", racks, (25.0, 25.0)), partitions)


A100, V100, T4 = ("r-0", "r-1", "s-0"), ("r-2", "s-1", "s-2"), ("r-3", "s-3", "s-4")
APART = mixed({"a": A100, "v": V100, "t": T4})  # each type has a partition of its own
OVERLAPPING = mixed({"a": A100, "large": (*A100, *V100), "v": V100, "all": (*A100, *V100, *T4), "t": T4[:2]})
LINKED = mixed({"a": A100, "v": (*A100[2:], *V100), "t": T4})  # some machines are in two partitions
UNLISTED = mixed({})
# A model so large that the uplinks of the small cluster carry it only where ranks share machines.
HUGE: Mapping[str, ModelProfile] = {**library(), "huge": ModelProfile("huge", grad_bytes=1e10, iteration_ms=900.0)}


def first_choices(name: str) -> FirstChoices:
    placer = policy(name)
    assert isinstance(placer, FirstChoices)
    return placer


def both(
    cluster: Cluster,
    trace: Trace,
    name: str,
    seed: int = 0,
    network: Slowdown = isolated,
    collective: str | None = None,
    order: str = "fifo",
) -> tuple[ReplayRecord, ReplayRecord]:
    jobs, again = (
        trace.jobs(seed, collective, profiles=HUGE, partitions=cluster.partitions, limits=True) for _ in range(2)
    )
    fast = CompiledReplay(cluster, first_choices(name), network, order=order).run(jobs)
    replay = Replay(cluster, QueuePolicy(policy(name), order, network), network=Isolated(network))
    return fast, replay.run(again)


def twice(job: Job, cost: Communication) -> float:
    """A network of a user's own: only Python can tell what it does."""
    return 1.0 + 2.0 * cost.comm_s / job.profile.iteration_s


def assert_equal(fast: ReplayRecord, plain: ReplayRecord) -> None:
    assert fast.jobs.equals(plain.jobs)
    assert fast.jobs.schema == plain.jobs.schema
    assert fast.runs.equals(plain.runs)
    assert fast.runs.schema == plain.runs.schema
    assert np.array_equal(fast.samples, plain.samples)
    for ours, theirs in zip(fast.run_columns, plain.run_columns, strict=True):
        assert np.array_equal(ours, theirs)


def rows(*choices: Sequence[object]) -> st.SearchStrategy[list[tuple[object, ...]]]:
    """Rows with one value of each choice. A row is one number: drawing each value takes longer than a replay."""

    def row(number: int) -> tuple[object, ...]:
        values = []
        for choice in choices:
            number, at = divmod(number, len(choice))
            values.append(choice[at])
        return tuple(values)

    drawn = st.integers(0, math.prod(map(len, choices)) - 1).map(row)
    return st.integers(1, 40).flatmap(lambda jobs: st.lists(drawn, min_size=jobs, max_size=jobs))


def trace_of(drawn: Sequence[tuple[object, ...]], **more: pl.DataType) -> Trace:
    """Return a trace of rows that start with the pause before a job."""
    schema: dict[str, pl.DataType] = {"submit_s": pl.Float64(), "gpus": pl.Int32(), "duration_s": pl.Float64()}
    schema |= {"model": pl.String(), "collective": pl.String(), **more}
    frame = pl.DataFrame(drawn, schema=schema, orient="row")
    ids = pl.format("job-{}", pl.int_range(pl.len())).alias("job_id")
    return Trace("drawn", frame.select(ids, pl.col("submit_s").cum_sum(), pl.exclude("submit_s")))


PAUSES_S = [0.0, 0.0, 1.0, 30.0, 250.5]
DURATIONS_S = [0.0, 10.0, 60.0, 250.5, 1e6]
MODELS = [None, None, "vgg16", "huge"]
PATTERNS = [None, "halving-doubling", "halving-doubling", *COLLECTIVES]


def traces() -> st.SearchStrategy[Trace]:
    """Jobs that come in bursts, queue up and end together; some too large, some huge, of every collective."""
    gpus = [1, 1, 1, 2, 3, 4, 4, 5, 7, 8, 12, 16, 17, 32, 70, 128]
    return rows(PAUSES_S, gpus, DURATIONS_S, MODELS, PATTERNS).map(trace_of)


@st.composite
def queued_traces(draw: st.DrawFn) -> Trace:
    """Jobs of some types and partitions, with limits and priorities that several share; some can run nowhere."""
    gpus = [1, 1, 1, 2, 3, 4, 4, 5, 6, 8, 12, 16]
    types: list[object] = draw(st.sampled_from([[None], [None, "a100", "v100", "t4"]]))
    partitions: list[object] = draw(st.sampled_from([["a", "v", "t"], [None, "a", "v", "t", "large", "all"]]))
    limits_s: list[object] = draw(st.sampled_from([[None], [None, 0.0, 5.0, 60.0, 60.0, 300.0, 1e6]]))
    priorities: list[object] = draw(st.sampled_from([[None], [None, 1.0, 1.0, 2.0, -1.0]]))
    drawn = draw(rows(PAUSES_S, gpus, DURATIONS_S, MODELS, PATTERNS, types, partitions, limits_s, priorities))
    text, number = pl.String(), pl.Float64()
    return trace_of(drawn, gpu_type=text, partition=text, limit_s=number, priority=number)


@pytest.mark.parametrize("name", COMPILED)
@settings(max_examples=examples(40))
@given(
    cluster=st.sampled_from([SMALL, UNEVEN, APART, OVERLAPPING, LINKED, UNLISTED]),
    trace=queued_traces(),
    order=st.sampled_from(["fifo", "priority", "sjf", "backfill", "backfill", "backfill"]),
    network=st.sampled_from([isolated, instant, twice]),
)
def test_kinds_of_jobs_in_any_order_equal_the_event_loop(
    name: str, cluster: Cluster, trace: Trace, order: str, network: Slowdown
) -> None:
    plain_types = {machine.gpu_type for machine in cluster.machines}
    if plain_types == {""}:
        trace = Trace("untyped", trace.frame.drop("gpu_type"))
    assert_equal(*both(cluster, trace, name, network=network, order=order))


@pytest.mark.parametrize("name", ["best-fit", "consolidate-idle", "titan"])
@pytest.mark.parametrize("order", ["fifo", "backfill"])
def test_a_busy_cluster_of_partitions_equals_the_event_loop(name: str, order: str) -> None:
    kinds = [("a100", 8), ("v100", 4), ("a100", 8)]
    racks = tuple(typed_rack(f"rack{at}", *[kinds[at % 3]] * 6) for at in range(6))
    names = [[machine.name for machine in rack.children if isinstance(machine, Machine)] for rack in racks]
    partitions = {"new": names[0] + names[2], "old": names[1] + names[4], "spare": names[3] + names[5]}
    cluster = Cluster.of(Switch("top", racks, (50.0,) * 6), {**partitions, "any-a100": names[2] + names[3]})
    jobs = generate_trace("itp", jobs=800, seed=3, load=1.05, gpus=cluster.gpus, max_gpus=32).frame
    row = pl.int_range(pl.len())
    trace = Trace(
        "busy",
        jobs.with_columns(
            partition=pl.Series(list(cluster.partitions)).gather(jobs.select(row % 11 % 4).to_series()),
            limit_s=pl.col("duration_s") * (1.0 + (row % 7)),
            priority=(row % 5).cast(pl.Float64),
        ),
    )
    fast, plain = both(cluster, trace, name, order=order)
    assert_equal(fast, plain)
    assert (fast.jobs["wait_s"] > 0).sum() > 100
    assert (fast.jobs["machines"] > 1).any()


@pytest.mark.parametrize("name", COMPILED)
@settings(max_examples=examples(30))
@given(
    cluster=st.sampled_from([SMALL, WIDE, UNEVEN]),
    trace=traces(),
    seed=st.integers(0, 3),
    network=st.sampled_from([isolated, instant, twice]),
)
def test_a_compiled_replay_equals_the_event_loop(
    name: str, cluster: Cluster, trace: Trace, seed: int, network: Slowdown
) -> None:
    assert_equal(*both(cluster, trace, name, seed, network))


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_replay_equals_the_event_loop_on_a_busy_cluster(name: str) -> None:
    cluster = Cluster.fat_tree(racks=9, machines_per_rack=8, gpus_per_machine=8)  # sets of more than one word
    trace = generate_trace("itp", jobs=1500, seed=1, load=1.1, gpus=cluster.gpus)
    fast, plain = both(cluster, trace, name)
    assert_equal(fast, plain)
    assert (fast.jobs["wait_s"] > 0).any()
    assert (fast.jobs["machines"] > 1).any()


@pytest.mark.parametrize("collective", ["ring", "halving-doubling", "tree"])
def test_a_compiled_titan_equals_the_event_loop_where_links_are_busy(collective: str) -> None:
    cluster = Cluster.fat_tree(racks=8, machines_per_rack=8, gpus_per_machine=8, link_gbps=40, oversubscription=4)
    trace = generate_trace("acme", jobs=1500, seed=1, load=0.7, gpus=cluster.gpus, max_gpus=256)
    fast, plain = both(cluster, trace, "titan", collective=collective)
    assert_equal(fast, plain)
    assert (fast.jobs.filter(pl.col("gpus") > 64)["machines"] > 1).any()
    without_constraint = CompiledReplay(cluster, Titan(phase_budget_s=1e9)).run(trace.jobs(0, collective))
    assert not without_constraint.runs.equals(fast.runs)


@pytest.mark.parametrize("name", ["best-fit", "consolidate-idle", "fragments-first", "titan"])
def test_drafted_jobs_never_come_to_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.fat_tree(racks=20, machines_per_rack=8, gpus_per_machine=8)  # more than Titan would search
    trace = generate_trace("itp", jobs=1500, seed=1, load=0.07, gpus=cluster.gpus, max_gpus=64)

    def place(*_: object) -> None:
        pytest.fail("Python was asked")

    expected = both(cluster, trace, name)[1]
    monkeypatch.setattr(type(policy(name)), "place", place)
    record = CompiledReplay(cluster, first_choices(name)).run(trace.jobs(profiles=HUGE))
    assert_equal(record, expected)
    assert (record.jobs["machines"] > 1).any()


def test_jobs_of_several_patterns_are_left_to_python() -> None:
    trace = generate_trace("philly", jobs=200, seed=2, load=0.9, gpus=WIDE.gpus, max_gpus=32)
    tp = pl.when(pl.col("gpus") % 2 == 0).then(2).otherwise(1).cast(pl.Int32)
    trace = Trace.from_frame(trace.frame.with_columns(tp=tp), "sharded", profiles=HUGE)
    fast, plain = both(WIDE, trace, "titan")
    assert_equal(fast, plain)
    assert (fast.jobs["machines"] > 1).any()


def test_entries_of_the_memo_may_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.fat_tree(racks=9, machines_per_rack=8, gpus_per_machine=8)
    trace = generate_trace("itp", jobs=1500, seed=1, load=1.1, gpus=cluster.gpus)
    add, added = Memo.add, []

    def recorded(table: Memo, key: Ints, entry: Sequence[int]) -> None:
        added.append(tuple(key.tolist()))
        add(table, key, entry)

    monkeypatch.setattr(Memo, "add", recorded)
    monkeypatch.setattr(memo, "MOST_ROWS", 20)
    assert_equal(*both(cluster, trace, "titan"))
    assert len(set(added)) > 20
    assert len(set(added)) < len(added)  # some of them twice


def test_machines_may_have_as_many_gpus_as_a_word_has_bits() -> None:
    cluster = Cluster.single_rack(machines=3, gpus_per_machine=64)
    trace = generate_trace("acme", jobs=400, seed=1, load=0.9, gpus=cluster.gpus)
    assert_equal(*both(cluster, trace, "titan"))


class Picky(BestFit):
    """Best fit that spreads no huge model."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        return None if job.model == "huge" and job.gpus > 4 else super().place(job, view)


def both_picky(trace: Trace, network: Slowdown = isolated) -> tuple[ReplayRecord, ReplayRecord]:
    fast = CompiledReplay(SMALL, Picky(), network).run(trace.jobs(profiles=HUGE))
    return fast, Replay(SMALL, QueuePolicy(Picky()), network=Isolated(network)).run(trace.jobs(profiles=HUGE))


def test_jobs_that_can_never_run_are_skipped_in_both() -> None:
    trace = Trace(
        "drawn",
        pl.DataFrame(
            {
                "job_id": ["fills", "never", "later", "too-large"],
                "submit_s": [0.0, 1.0, 2.0, 3.0],
                "gpus": pl.Series([16, 16, 1, 99], dtype=pl.Int32),
                "duration_s": [10.0, 10.0, 10.0, 10.0],
                "model": ["resnet50", "huge", "resnet50", "resnet50"],
            }
        ),
    )
    fast, plain = both_picky(trace)
    assert_equal(fast, plain)
    assert fast.jobs.filter(pl.col("status") == SKIPPED)["job_id"].to_list() == ["never", "too-large"]


@pytest.mark.parametrize(("arrive_s", "arrivals"), [(5.0, [1, 4, 0, 0]), (10.0, [1, 4, 0])])
def test_infeasible_jobs_block_none_that_come_with_them(arrive_s: float, arrivals: list[int]) -> None:
    gpus, models = [16, 16, 99, 16, 1, 1], ["resnet50", "huge", "resnet50", "huge", "resnet50", "resnet50"]
    frame = pl.DataFrame(
        {
            "job_id": ["fills", "never", "too-large", "neither", "a", "b"],
            "submit_s": [0.0] + [arrive_s] * 5,
            "gpus": pl.Series(gpus, dtype=pl.Int32),
            "duration_s": [10.0] * 6,
            "model": models,
        }
    )
    fast, plain = both_picky(Trace("drawn", frame), instant)
    assert_equal(fast, plain)
    done = fast.jobs.filter(pl.col("status") != SKIPPED)
    assert dict(done.select("job_id", "start_s").iter_rows()) == {"fills": 0.0, "a": 10.0, "b": 10.0}
    assert fast.samples[:, 1].tolist() == arrivals


class Moody(BestFit):
    """Best fit that changes its mind about jobs of 5 after the first second."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        return None if job.gpus == 5 and view.now_s > 1 else super().place(job, view)


def test_jobs_that_do_not_start_although_nothing_runs_are_skipped_in_both() -> None:
    gpus = [16, 5, 1, 5, 99, 5]
    frame = pl.DataFrame(
        {
            "job_id": [f"job-{number}" for number in range(len(gpus))],
            "submit_s": [0.5 * number for number in range(len(gpus))],
            "gpus": pl.Series(gpus, dtype=pl.Int32),
            "duration_s": [10.0] * len(gpus),
        }
    )
    fast = CompiledReplay(SMALL, Moody()).run(Trace("moody", frame).jobs())
    plain = Replay(SMALL, QueuePolicy(Moody())).run(Trace("moody", frame).jobs())
    assert_equal(fast, plain)
    skipped = fast.jobs.filter(pl.col("status") == SKIPPED)["job_id"].to_list()
    assert sorted(skipped) == ["job-1", "job-3", "job-4", "job-5"]


@pytest.mark.parametrize("name", COMPILED)
@given(free=st.lists(st.integers(0, 4), min_size=1, max_size=6), gpus=st.integers(1, 4))
def test_first_choices_are_what_the_policy_does(name: str, free: list[int], gpus: int) -> None:
    placer = first_choices(name)
    wanted = next((size for size in placer.first_choices(gpus, 4) if size in free), None)
    fragments = sum(size for size in free if size < 4)
    if wanted is not None and not (wanted == 4 and placer.fragments_before_idle and gpus <= fragments):
        placement = placer.place(Job("job", gpus), state_with(free).snapshot())
        if wanted >= gpus:
            assert placement is not None
            assert placement.machines == (free.index(wanted),) * gpus
        else:
            assert placement is None or len(placement.counts) > 1


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_a_job_that_fits_one_machine_starts_on_an_empty_cluster(name: str, gpus: int) -> None:
    assert policy(name).place(Job("job", gpus), state_with([4, 4]).snapshot()) is not None


def test_only_orders_and_jobs_that_are_known_from_the_start_are_compiled() -> None:
    jobs = generate_trace("philly", jobs=3).jobs()
    titan = policy("titan")
    uneven = Cluster.of(Switch("top", (Machine("a", 2), Machine("b", 4)), (10.0, 10.0)))
    for order in ("fifo", "sjf", "priority", "backfill"):
        assert compiled_replay(SMALL, QueuePolicy(titan, order), isolated, jobs) is not None
    assert compiled_replay(uneven, QueuePolicy(titan), isolated, jobs) is not None
    assert compiled_replay(SMALL, QueuePolicy(titan, "las"), isolated, jobs) is None
    assert (
        compiled_replay(SMALL, QueuePolicy(titan, "backfill"), instant, jobs) is None
    )  # it expects another network
    assert compiled_replay(SMALL, QueuePolicy(policy("hived")), isolated, jobs) is None
    elastic = generate_trace("philly", jobs=3).frame.with_columns(least_gpus=pl.lit(1, dtype=pl.Int32))
    assert compiled_replay(SMALL, QueuePolicy(titan), isolated, Trace("elastic", elastic).jobs()) is None


def test_more_kinds_of_jobs_than_bits_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = generate_trace("philly", jobs=3).frame.with_columns(gpu_type=pl.Series(["a100", "v100", None]))
    kinds = Trace("typed", jobs).jobs()
    assert compiled_replay(UNLISTED, QueuePolicy(policy("titan")), isolated, kinds) is not None
    monkeypatch.setattr(replay_arrays, "MOST_KINDS", 2)
    assert compiled_replay(UNLISTED, QueuePolicy(policy("titan")), isolated, kinds) is None


def test_simulate_compiles_long_traces_and_tells_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = generate_trace("philly", jobs=200, seed=2, load=0.9, gpus=SMALL.gpus)
    plain = run.simulate(SMALL, trace, "titan")
    monkeypatch.setattr(run, "COMPILE_FROM", 100)
    monkeypatch.setattr("cranny.scenario.Replay", None)
    monkeypatch.setattr(fast_replay, "PAUSE_EVERY", 64)
    heard: list[int] = []
    fast = run.simulate(SMALL, trace, "titan", progress=heard.append)
    assert heard == [64, 128, 192]
    assert fast.summary == plain.summary
    assert fast.timeline.equals(plain.timeline)
