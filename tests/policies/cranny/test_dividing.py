"""Jobs that can be resized under the policy `cranny`."""

from dataclasses import replace

import polars as pl
import pytest

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.run import Result, simulate

ONE = Cluster.fat_tree(1, 1, 8)


def replayed(*came: Job, cluster: Cluster = ONE, network: str = "isolated") -> Result:
    """Replay jobs."""
    return simulate(cluster, list(came), "cranny", network)


def jct_s(result: Result) -> dict[str, float]:
    """Return completion times by job."""
    return dict(result.jobs.select("job_id", "jct_s").iter_rows())


def stream(restart_s: float, count: int = 12) -> list[Job]:
    """Jobs that ask for three quarters of the GPUs each, and come faster than they end."""
    return [
        Job(f"job-{i}", 6, submit_s=50.0 * i, duration_s=100.0, least_gpus=2, restart_s=restart_s)
        for i in range(count)
    ]


def test_gpus_are_divided_again_only_if_restarts_are_short() -> None:
    assert replayed(*stream(1.0)).summary["moves"] > 0
    assert replayed(*stream(60.0)).summary["moves"] == 0


def test_a_job_starts_with_fewer_workers_if_it_ends_sooner_so() -> None:
    first = Job("first", 6, duration_s=1000.0, restart_s=5000.0)  # too long to be stopped
    short = Job("short", 4, submit_s=1.0, duration_s=10.0, least_gpus=2, restart_s=60.0)
    found = jct_s(replayed(first, short))
    assert found["short"] == pytest.approx(20.0)  # two workers do the work of four
    assert found["first"] == pytest.approx(1000.0)


@pytest.mark.parametrize(("least", "duration_s"), [(3, 10.0), (2, 5000.0)])
def test_it_waits_where_two_workers_are_too_few_or_take_longer(least: int, duration_s: float) -> None:
    first = Job("first", 6, duration_s=1000.0, restart_s=5000.0)  # too long to be stopped
    other = Job("other", 4, submit_s=1.0, duration_s=duration_s, least_gpus=least, restart_s=5000.0)
    assert jct_s(replayed(first, other))["other"] == pytest.approx(999.0 + duration_s)


def test_fewer_workers_do_not_delay_a_start_that_was_promised() -> None:
    first = Job("first", 6, duration_s=1000.0, restart_s=5000.0)  # too long to be stopped
    large = Job("large", 8, submit_s=1.0, duration_s=10.0)  # promised for 1,000 s
    keeps = Job("keeps", 4, submit_s=2.0, duration_s=600.0, least_gpus=2, restart_s=5000.0)  # 1,200 s with two
    rows = {row["job_id"]: row for row in replayed(first, large, keeps).jobs.iter_rows(named=True)}
    assert rows["large"]["submit_s"] + rows["large"]["wait_s"] == pytest.approx(1000.0)


def test_workers_of_a_share_go_where_they_cost_least() -> None:
    """Two jobs divide two racks: each has one to itself."""
    cluster = Cluster.fat_tree(2, 4, 1, 10.0, oversubscription=4)
    came = [Job(f"job-{i}", 8, "vgg16", "ring", duration_s=1000.0, least_gpus=4) for i in range(2)]
    runs = replayed(*came, cluster=cluster, network="steady").runs.filter(pl.col("start_s") == 0.0)
    racks: dict[str, set[int]] = {}
    for job_id, machine in runs.select("job_id", "machine").iter_rows():
        racks.setdefault(job_id, set()).add(cluster.rack_of[machine])
    assert sorted(map(sorted, racks.values())) == [[0], [1]]


@pytest.mark.parametrize("restart_s", [0.0, 60.0])
def test_all_jobs_end_on_mixed_gpus(restart_s: float) -> None:
    """Shares of types stay as they were found."""
    machines = tuple(Machine(f"m{at}", 4, kind) for at, kind in enumerate(["A", "B", "A"]))
    cluster = Cluster.of(Switch("core", machines, (10.0,) * 3))
    came = [replace(job, speeds={"A": 1.0, "B": 2.0}) for job in stream(restart_s)]
    assert replayed(*came, cluster=cluster).summary["jobs_done"] == len(came)


MIXED = Cluster.of(Switch("core", (Machine("slow", 4, "A"), Machine("fast", 4, "B")), (1e6,) * 2))


def elastic_job(name: str, duration_s: float, submit_s: float = 0.0, restart_s: float = 1.0) -> Job:
    """A job of four workers that can have eight, and trains twice as fast on the fast machine."""
    return Job(
        name,
        4,
        submit_s=submit_s,
        duration_s=duration_s,
        least_gpus=1,
        most_gpus=8,
        speeds={"A": 1.0, "B": 2.0},
        restart_s=restart_s,
    )


def test_jobs_on_mixed_gpus_run_one_after_the_other_and_the_shortest_first() -> None:
    result = replayed(elastic_job("long", 3000.0), elastic_job("short", 300.0), cluster=MIXED, network="instant")
    assert jct_s(result) == pytest.approx(
        {"short": 100.0, "long": 1100.0}
    )  # 12 GPUs of the slow kind do three times as much
    assert result.summary["moves"] == 0


@pytest.mark.parametrize(
    ("restart_s", "wanted"), [(1.0, {"a": 150.0, "b": 150.0}), (30.0, {"a": 120.0, "b": 240.0})]
)
def test_jobs_share_mixed_gpus_from_the_start_if_each_is_faster_on_another_kind_and_restarts_are_short(
    restart_s: float, wanted: dict[str, float]
) -> None:
    """Each is four times as fast on one of the machines: shared, both take 300 * 4 / (4 * 2.0) s."""
    a = replace(elastic_job("a", 300.0, restart_s=restart_s), speeds={"A": 2.0, "B": 0.5})
    b = replace(elastic_job("b", 300.0, restart_s=restart_s), speeds={"A": 0.5, "B": 2.0})
    assert jct_s(replayed(a, b, cluster=MIXED, network="instant")) == pytest.approx(wanted)


def test_a_job_on_mixed_gpus_makes_way_for_one_that_is_shorter_by_far() -> None:
    long, short = elastic_job("long", 3000.0), elastic_job("short", 300.0, submit_s=100.0)
    assert jct_s(replayed(long, short, cluster=MIXED, network="instant"))["short"] == pytest.approx(100.0)
    other = elastic_job("other", 2900.0, submit_s=100.0)  # 967 s alone, and 900 s are left of the first
    assert jct_s(replayed(long, other, cluster=MIXED, network="instant"))["long"] == pytest.approx(1000.0)


def test_a_long_job_on_mixed_gpus_is_not_passed_for_ever() -> None:
    """Short jobs that come faster than they end keep it waiting only until it comes before them in the queue."""
    came = [elastic_job(f"short-{i}", 300.0, submit_s=90.0 * i) for i in range(400)]
    result = replayed(elastic_job("long", 900.0), *came, cluster=MIXED, network="instant")
    # A patience of 10 lets jobs pass that come up to 10 * (900 - 300) * 2 s later.
    assert jct_s(result)["long"] < 14_000.0
    assert result.summary["jobs_done"] == 401


def test_the_last_job_on_mixed_gpus_grows_if_that_is_worth_its_restart() -> None:
    """The second job gets what the first one cannot use."""
    first = replace(elastic_job("first", 400.0), most_gpus=4, speeds={"B": 2.0})
    for restart_s, moves in ((1.0, 1), (5000.0, 0)):
        second = elastic_job("second", 4000.0, restart_s=restart_s)
        dear = [replace(first, duration_s=400.0 if restart_s < 10.0 else 100_000.0), second]
        assert replayed(*dear, cluster=MIXED, network="instant").summary["moves"] == moves


@pytest.mark.parametrize("restart_s", [0.0, 10.0])
def test_a_job_of_all_gpus_is_not_passed_for_ever(restart_s: float) -> None:
    """Short jobs that come faster than they end, and are not worth stopping, no longer start once it is due."""
    came = [
        Job(f"short-{i}", 4, submit_s=45.0 * i, duration_s=100.0, least_gpus=2, restart_s=restart_s)
        for i in range(400)
    ]
    result = replayed(Job("large", 8, duration_s=300.0), *came)
    # A patience of 10 lets jobs pass it until 10 * 300 * sqrt(8) s.
    assert jct_s(result)["large"] < 10.0 * 300.0 * 8**0.5 + 1000.0
    assert result.summary["jobs_done"] == 401
