import base64
import dataclasses
import gzip
import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from tests.report.synthetic import FakeResult

from cranny.report import occupancy as module
from cranny.report.occupancy import occupancy, sample_times_s


def unpack(packed: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def held(content: Any, run: int, time: int) -> dict[tuple[int, int], str]:
    """Read the map as the page does: the job on each (machine, slot)."""
    rows, machine, found = content["runs"][run], 0, {}
    for row, step in enumerate(rows["machine_step"]):
        machine += step
        if rows["first"][row] <= time < rows["first"][row] + rows["count"][row]:
            for slot in content["masks"][rows["mask"][row]]:
                found[machine, slot] = content["jobs"]["id"][rows["job"][row]]
    return found


def test_the_packed_map_says_who_holds_what(results: Sequence[FakeResult]) -> None:
    content = unpack(occupancy(results).packed)
    origin_s = results[0].timeline["time_s"].min()
    for run, result in enumerate(results):
        for time in (0, 17, 59):
            at_s = content["times_s"][time] + origin_s
            running = result.runs.filter((pl.col("start_s") <= at_s) & (pl.col("end_s") > at_s))
            wanted = {
                (machine, slot): job
                for job, machine, mask in running.select("job_id", "machine", "gpus").iter_rows()
                for slot in range(64)
                if mask >> slot & 1
            }
            assert held(content, run, time) == wanted


def test_slots_up_to_the_64th_survive(results: Sequence[FakeResult]) -> None:
    runs = (
        results[0]
        .runs.head(1)
        .with_columns(
            pl.lit(0.0).alias("start_s"),
            pl.lit(1e9).alias("end_s"),
            pl.Series("gpus", [2**63 + 1], dtype=pl.UInt64),
        )
    )
    content = unpack(occupancy([dataclasses.replace(results[0], runs=runs)]).packed)
    assert content["masks"] == [[0, 63]]


def test_a_wanted_time_is_among_the_times_and_shown_first(results: Sequence[FakeResult]) -> None:
    content = unpack(occupancy(results, at_s=12345.0).packed)
    origin_s = results[0].timeline["time_s"].min()
    assert content["times_s"][content["shown"]] + origin_s == pytest.approx(12345.0)


def test_times_are_given_up_to_stay_small(results: Sequence[FakeResult], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = occupancy(results)
    monkeypatch.setattr(module, "BUDGET_BYTES", len(whole.packed) // 2)
    less = occupancy(results)
    assert less.times < whole.times
    assert len(less.packed) <= len(whole.packed) // 2


def test_the_map_goes_on_after_a_burst_of_arrivals(results: Sequence[FakeResult]) -> None:
    burst = dataclasses.replace(results[0], timeline=results[0].timeline.with_columns(pl.col("time_s") * 1e-6))
    content = unpack(occupancy([burst]).packed)
    assert content["times_s"][-1] > 86400


def test_a_cluster_is_stored_once(results: Sequence[FakeResult]) -> None:
    content = unpack(occupancy(results).packed)
    assert len(content["clusters"]) == 1
    assert content["clusters"][0]["racks"] == ["rack 00", "rack 01", "rack 02"]


def test_times_are_the_middles_of_equal_parts() -> None:
    assert sample_times_s((0.0, 10.0), 5, None).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert sample_times_s((0.0, 10.0), 1, 2.0).tolist() == [2.0, 5.0]
