"""Who gains and loses, and which jobs are the problem, on frames that are small enough to check by hand."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.idle_beside import idle_by_seconds

from cranny.analysis.whatif.groups import changes_by_group, credited_by_group, labels, same_jobs, waits_by_group
from cranny.analysis.whatif.problem_jobs import extra_machine_hours, idle_beside, problem_jobs
from cranny.model.cluster import Machine

LOG = pl.DataFrame(
    {
        "job_id": ["a", "b", "c", "d"],
        "gpus": [1, 8, 2, 64],
        "duration_s": [3600.0, 7200.0, 3600.0, 3600.0],
        "user": ["ann", "bob", "ann", None],
        "partition": [None] * 4,
    },
    schema_overrides={"partition": pl.String},
)


def jobs(*wait_s: float) -> pl.DataFrame:
    made = LOG.with_row_index("row").select("row", "job_id", "gpus", "duration_s")
    made = made.with_columns(wait_s=pl.Series(wait_s))
    return made.with_columns(jct_s=pl.col("wait_s") + pl.col("duration_s"))


WAS, THEN = jobs(0, 600, 1200, 7200), jobs(0, 1200, 600, 7210)
RUNS = {"job_id": pl.String, "start_s": pl.Float64, "end_s": pl.Float64, "machine": pl.Int32, "gpus": pl.UInt64}


def runs(*rows: tuple[str, float, float, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=RUNS, orient="row")


def rows(frame: pl.DataFrame, **where: Any) -> list[dict[str, Any]]:
    return frame.filter(*(pl.col(name) == value for name, value in where.items())).rows(named=True)


def test_jobs_are_grouped_by_what_the_log_says() -> None:
    label = labels(LOG)
    assert label.columns == ["user", "size"]  # a column without a value says nothing
    assert label["size"].to_list() == ["1", "8", "2-7", "64+"]
    assert label["user"].to_list() == ["ann", "bob", "ann", "(none)"]


def test_a_tenant_that_is_the_partition_is_shown_once() -> None:
    parted = LOG.with_columns(partition=pl.Series(["p", "q", "p", "q"]))
    same = parted.with_columns(tenant="partition")
    assert labels(same).columns == ["user", "partition", "size"]
    other = parted.with_columns(tenant=pl.Series(["p", "q", "q", "q"]))
    assert labels(other).columns == ["user", "tenant", "partition", "size"]
    alone = LOG.with_columns(tenant="user").drop("user")
    assert labels(alone).columns == ["tenant", "size"]


def test_a_policy_is_credited_with_its_difference_to_the_replay_in_each_group() -> None:
    cases = {
        "was": jobs(100, 600, 1200, 7200),
        "replay": jobs(0, 500, 1000, 7000),
        "then": jobs(0, 900, 700, 7000),
    }
    found = credited_by_group(waits_by_group(cases, labels(LOG)), "was", "replay")
    assert found["case"].unique().to_list() == ["then"]
    (ann,) = rows(found, by="user", group="ann")  # jobs a and c
    assert (ann["logged_wait_s"], ann["replayed_wait_s"], ann["mean_wait_s"]) == (650.0, 500.0, 350.0)
    assert (ann["gained_s"], ann["credited_wait_s"]) == (150.0, 500.0)
    (bob,) = rows(found, by="user", group="bob")
    assert (bob["gained_s"], bob["credited_wait_s"]) == (-400.0, 1000.0)
    same = cases | {"then": cases["replay"]}
    again = credited_by_group(waits_by_group(same, labels(LOG)), "was", "replay")
    assert again["credited_wait_s"].to_list() == again["logged_wait_s"].to_list()


def test_waits_and_gpu_hours_are_those_of_the_group() -> None:
    found = waits_by_group({"was": WAS, "then": THEN}, labels(LOG))
    (ann,) = rows(found, case="was", by="user", group="ann")
    assert (ann["jobs"], ann["gpu_hours"], ann["mean_wait_s"]) == (2, 3.0, 600.0)
    assert ann["p95_wait_s"] == pytest.approx(0.95 * 1200)
    assert ann["mean_jct_s"] == pytest.approx(600.0 + 3600.0)
    assert [each["group"] for each in rows(found, case="then", by="user")] == ["(none)", "bob", "ann"]
    for by in ("user", "size"):
        assert sum(each["jobs"] for each in rows(found, case="then", by=by)) == 4


def test_who_gains_and_loses_is_counted_job_by_job() -> None:
    found = changes_by_group({"was": WAS, "then": THEN}, labels(LOG), "was")
    (everyone,) = rows(found, by="all")
    assert (everyone["jobs"], everyone["sooner"], everyone["later"]) == (4, 1, 1)  # ten seconds are no change
    assert everyone["mean_change_s"] == pytest.approx((600 - 600 + 10) / 4)
    by_user = rows(found, case="then", by="user")
    assert [(each["group"], each["mean_change_s"]) for each in by_user] == [
        ("bob", 600),
        ("(none)", 10),
        ("ann", -300),
    ]
    assert {each["against"] for each in by_user} == {"was"}


def test_only_jobs_of_all_cases_are_compared() -> None:
    cases = {"was": WAS.head(3).drop("row"), "then": THEN.drop("row").reverse(), "again": THEN.drop("row")}
    found = same_jobs(cases, LOG, LOG.filter(pl.col("job_id") != "a"))
    assert {name: each["row"].to_list() for name, each in found.items()} == {
        "was": [1, 2],
        "then": [2, 1],
        "again": [1, 2],
    }
    assert found["then"]["wait_s"].to_list() == [600, 1200]


# Machine 0 has 8 GPUs: a holds 2 of them from 0 to 2 h, b holds 4 from 1 to 2 h. c holds one GPU on each of two
# machines for an hour although one machine would do.
HOUR = 3600.0
HELD = runs(
    ("a", 0, 2 * HOUR, 0, 0b11), ("b", HOUR, 2 * HOUR, 0, 0b111100), ("c", 0, HOUR, 1, 1), ("c", 0, HOUR, 2, 1)
)
MACHINES = Machine("x", 8), Machine("y", 4), Machine("z", 4)


def test_idle_gpus_are_divided_among_the_jobs_of_their_machine() -> None:
    found = dict(idle_beside(HELD, MACHINES, (0.0, 4 * HOUR)).rows())
    assert found == pytest.approx({"a": 6 + 2 / 2, "b": 2 / 2, "c": 3 + 3})


def test_more_machines_than_needed_are_counted_by_the_hour() -> None:
    found = dict(extra_machine_hours(HELD, MACHINES, (0.0, 4 * HOUR)).rows())
    assert found == pytest.approx({"c": 1.0})


def test_problem_jobs_are_ranked_by_kind() -> None:
    log = LOG.with_columns(gpu_utilisation=pl.Series([1.0, 0.25, None, 0.5]))
    found = problem_jobs(HELD, WAS, log, MACHINES, (0.0, 4 * HOUR))
    assert [each["job_id"] for each in rows(found, problem="wait_s")] == ["d", "c", "b"]
    assert [each["job_id"] for each in rows(found, problem="idle_gpu_hours")] == ["a", "c", "b"]
    assert [each["job_id"] for each in rows(found, problem="extra_machine_hours")] == ["c"]
    unused = rows(found, problem="unused_gpu_hours")
    assert [(each["job_id"], each["amount"]) for each in unused] == [("d", 32.0), ("b", 12.0)]
    assert unused[1]["user"] == "bob"
    assert problem_jobs(HELD.clear(), WAS, LOG, MACHINES, (0.0, HOUR))["problem"].unique().to_list() == ["wait_s"]


@st.composite
def second_runs(draw: st.DrawFn) -> pl.DataFrame:
    made = []
    for machine in range(2):
        for gpu in range(3):
            at = draw(st.integers(-5, 10))
            for _ in range(draw(st.integers(0, 3))):
                end = at + draw(st.integers(1, 12))
                made.append((f"{machine}-{gpu}-{at}", float(at), float(end), machine, 1 << gpu))
                at = end + draw(st.integers(0, 6))
    return runs(*made)


@settings(max_examples=examples(40), deadline=None)
@given(second_runs())
def test_idle_gpus_are_those_of_a_walk_second_by_second(held: pl.DataFrame) -> None:
    machines = Machine("x", 3), Machine("y", 5)
    found = dict(idle_beside(held, machines, (0.0, 40.0)).rows())
    assert found == pytest.approx(idle_by_seconds(held, machines, (0, 40)), abs=1e-9)
