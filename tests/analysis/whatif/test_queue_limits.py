"""Limits that a log only shows, attempts that follow each other, and jobs of reservations."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cranny.analysis.whatif import what_if
from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.baseline import LoggedJobs, logged_jobs
from cranny.analysis.whatif.calibration import calibrated
from cranny.analysis.whatif.queue_limits import chained_attempts, inferred_limits
from cranny.analysis.whatif.what_if import answer
from cranny.model.cluster import Cluster
from cranny.run import run
from cranny.scenario import Scenario
from cranny.sim.admission import Admission, After
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

CLUSTER = Cluster.single_rack(4, 8)
ALWAYS_S = float("inf")


def arrays(tasks: int = 12, count: int = 14, seed: int = 0) -> tuple[Trace, Admission]:
    """Return a log of arrays whose tasks may run four at once, with other jobs between, and the limit."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for array in range(count):
        submit_s = 4000.0 * array
        rows += [
            {
                "job_id": f"{100 + array}_{k}",
                "submit_s": submit_s,
                "gpus": 1,
                "duration_s": float(s),
                "user": "ann",
            }
            for k, s in enumerate(rng.integers(300, 900, tasks))
        ]
        rows += [
            {
                "job_id": f"{500 + array}",
                "submit_s": submit_s + 100.0,
                "gpus": 4,
                "duration_s": 1000.0,
                "user": "bob",
            }
        ]
    group_of = {row["job_id"]: row["job_id"].partition("_")[0] for row in rows if "_" in row["job_id"]}
    return Trace.from_frame(pl.DataFrame(rows)), Admission(
        group_of=group_of, most_gpus=dict.fromkeys(group_of.values(), 4)
    )


def logged_with(trace: Trace, admission: Admission, cluster: Cluster = CLUSTER) -> tuple[Scenario, LoggedJobs]:
    """Return the log as a scheduler would have written it that holds jobs back."""
    scenario = Scenario(cluster, trace, "best-fit", "instant", order="backfill", admission=admission)
    starts = run(scenario).jobs.select("job_id", "start_s")
    with_starts = replace(trace, frame=trace.frame.join(starts, on="job_id", maintain_order="left"))
    logged = logged_jobs(with_starts)
    assert logged is not None
    return replace(scenario, trace=with_starts, admission=Admission()), logged


def test_the_limit_of_an_array_is_the_most_that_ran_at_once_while_gpus_were_free() -> None:
    trace, admission = arrays()
    scenario, logged = logged_with(trace, admission)
    found = inferred_limits(CLUSTER, scenario.whole_trace, logged, "array", ALWAYS_S)
    assert found is not None
    assert found.most_gpus == {str(100 + array): 4 for array in range(14)}
    assert found.group_of["103_5"] == "103"
    assert "503" not in found.group_of


def test_waits_for_gpus_are_no_limit() -> None:
    """Without limits on a cluster of four GPUs, tasks wait because all GPUs are held."""
    trace, _ = arrays()
    small = Cluster.single_rack(1, 4)
    scenario, logged = logged_with(trace, Admission(), small)
    assert float(logged.jobs["wait_s"].to_numpy().mean()) > 600
    for by in ("array", "user"):
        assert inferred_limits(small, scenario.whole_trace, logged, by, ALWAYS_S) is None


def test_ids_that_only_look_like_arrays_are_none() -> None:
    trace, admission = arrays()
    renamed = replace(trace, frame=trace.frame.with_columns("application_" + pl.col("job_id")))
    rules = replace(admission, group_of={f"application_{job}": of for job, of in admission.group_of.items()})
    scenario, logged = logged_with(renamed, rules)
    assert inferred_limits(CLUSTER, scenario.whole_trace, logged, "array", ALWAYS_S) is None


def test_the_replayed_scheduler_has_the_limits_of_arrays() -> None:
    found = calibrated(*logged_with(*arrays()), processes=1)
    assert found is not None
    assert found.model.groups is not None
    assert found.model.groups.by == "array"
    assert found.second_half.logged_mean_s > 300
    assert found.second_half.error == pytest.approx(0.0, abs=0.02)
    assert "with limits of tasks that run at once for 14 arrays" in " ".join(found.sentences())


def users(seed: int = 1) -> tuple[Trace, Admission]:
    """Return a log in which one user may hold eight of 32 GPUs, and the limit."""
    rng = np.random.default_rng(seed)
    jobs = 300
    frame = pl.DataFrame(
        {
            "job_id": [f"j{k}" for k in range(jobs)],
            "submit_s": np.cumsum(rng.integers(0, 300, jobs)).astype(float),
            "gpus": rng.choice([1, 2, 4], jobs),
            "duration_s": rng.integers(300, 900, jobs).astype(float),
            "user": rng.choice(["ann", "bob", "cyd"], jobs, p=[0.6, 0.2, 0.2]),
        }
    )
    limited = dict.fromkeys(frame.filter(user="ann")["job_id"].to_list(), "ann")
    return Trace.from_frame(frame), Admission(group_of=limited, most_gpus={"ann": 8})


def test_the_limit_of_a_user_is_learned_on_the_first_half() -> None:
    scenario, logged = logged_with(*users())
    found = calibrated(scenario, logged, processes=1)
    assert found is not None
    assert found.model.groups is not None
    assert (found.model.groups.by, found.model.groups.most_gpus) == ("user", {"ann": 8})
    assert found.close
    assert found.second_half.logged_mean_s > 60


def test_policies_keep_the_limits_that_the_replayed_scheduler_has() -> None:
    scenario, _ = logged_with(*users())
    found = answer(scenario, ["best-fit"], search=False, processes=1)
    policy = found.policies[0]
    assert policy.waits is not None
    assert found.was.waits is not None
    assert policy.waits.wait.mean_s == pytest.approx(found.was.waits.wait.mean_s, rel=0.02)
    assert "GPUs held at once for 1 user" in " ".join(found.assumptions)


SACCT = """JobID|State|Submit|Start|End|NodeList|AllocTRES
1|COMPLETED|2024-03-01T00:00:00|2024-03-01T00:00:00|2024-03-01T01:00:00|n1|gres/gpu=8
2|REQUEUED|2024-03-01T00:00:00|2024-03-01T00:00:00|2024-03-01T00:10:00|n2|gres/gpu=8
2|COMPLETED|2024-03-01T00:00:00|2024-03-01T00:12:00|2024-03-01T00:30:00|n2|gres/gpu=8
3|COMPLETED|2024-03-01T02:00:00|2024-03-01T02:00:00|2024-03-01T02:10:00|n2|gres/gpu=8
"""


def read(tmp_path: Path, log: str) -> Trace:
    path = tmp_path / "sacct.txt"
    path.write_text(log, encoding="utf-8")
    return read_trace(path)


def test_attempts_come_one_after_the_other(tmp_path: Path) -> None:
    assert chained_attempts(read(tmp_path, SACCT)) == {"2@2": After("2", 0.0)}


def asked(tmp_path: Path, log: str, cluster: Cluster) -> WhatIfAnswer:
    return what_if(read(tmp_path, log), cluster, ["best-fit"], search=False, processes=1)


def test_an_attempt_does_not_run_beside_one_that_is_delayed(tmp_path: Path) -> None:
    """On one machine the first attempt waits for an hour; the second must not start before it has ended."""
    found = asked(tmp_path, SACCT, Cluster.single_rack(1, 8))
    jobs = found.results[0].jobs
    runs = {name: (submit_s, start_s) for name, submit_s, start_s in jobs["job_id", "submit_s", "start_s"].rows()}
    assert runs["2"] == (0.0, 3600.0)
    assert runs["2@2"] == (4200.0, 4200.0)


def test_jobs_of_reservations_are_compared_in_no_row(tmp_path: Path) -> None:
    lines = SACCT.splitlines()
    log = "\n".join(
        [lines[0] + "|Reservation", *(line + ("|maintenance" if line[0] == "3" else "|") for line in lines[1:])]
    )
    found = asked(tmp_path, log + "\n", Cluster.single_rack(2, 8))
    assert [case.waits.jobs for case in found.cases if case.waits is not None] == [3, 3]
    assert any("because a reservation decided when they started: 1 job." in line for line in found.assumptions)
