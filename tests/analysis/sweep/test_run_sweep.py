"""Running sweeps in processes: what is finished stays, what fails stops nothing else, always the same bytes."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from tests.analysis.sweep.folders import files_of

from cranny.analysis.sweep.cell import CellOutcome, CellStore, SweepCell, SweepInputs, table
from cranny.analysis.sweep.run_sweep import run_sweep
from cranny.analysis.sweep.sweep_file import Sweep, read_sweep
from cranny.analysis.sweep.sweep_table import groups
from cranny.model.errors import CrannyError
from cranny.process_pool import DiedError
from cranny.run import run_many, run_scenario
from cranny.scenario import Scenario


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Return a sweep of twelve cells; on the smaller cluster no job of the file can run."""
    path = tmp_path / "study.yaml"
    path.write_text(
        "traces: [philly, large.csv]\njobs: 30\nclusters: [1x2x4, 1x1x2]\n"
        "policies: [best-fit, random, consolidate-idle]\nseeds: [0]\n",
        encoding="utf-8",
    )
    (tmp_path / "large.csv").write_text(
        "job_id,submit_s,gpus,duration_s,model\na,0,4,100,vgg16\nb,10,8,50,vgg16\n", encoding="utf-8"
    )
    return read_sweep(path)


def test_one_process_and_two_give_the_same_bytes(sweep: Sweep, tmp_path: Path) -> None:
    run_sweep(sweep, tmp_path / "one", processes=1)
    run_sweep(sweep, tmp_path / "two", processes=2)
    made = files_of(tmp_path / "one")
    assert made == files_of(tmp_path / "two")
    assert len(made) == 9 + 2  # cells that did not fail, and the table twice


def test_a_cell_that_fails_stops_no_other(sweep: Sweep, tmp_path: Path) -> None:
    told: list[CellOutcome] = []
    swept = run_sweep(sweep, tmp_path / "out", processes=1, ended=lambda _, outcome: told.append(outcome))
    assert (swept.run, swept.taken_over, swept.failed) == (12, 0, 3)
    assert len(told) == 12
    failed = swept.table.filter(pl.col("status") == "failed")
    assert set(failed["cluster"]) == {"1x1x2"}
    assert failed["reason"].str.starts_with("no job of large can run: ").all()
    assert failed["mean_jct_s"].is_null().all()
    done = swept.table.filter(pl.col("status") == "done")
    assert done["reason"].is_null().all()
    assert done["mean_jct_s"].is_not_null().all()


def test_the_files_hold_the_table(sweep: Sweep, tmp_path: Path) -> None:
    swept = run_sweep(sweep, tmp_path, processes=1)
    assert pl.read_parquet(tmp_path / "table.parquet").equals(swept.table)
    assert pl.read_csv(tmp_path / "table.csv")["key"].to_list() == [cell.key for cell in sweep.cells]
    assert swept.table.schema["jobs_done"] == pl.Int64
    assert swept.table.schema["mean_jct_s"] == pl.Float64


def test_finished_cells_are_taken_over_and_failed_ones_run_again(sweep: Sweep, tmp_path: Path) -> None:
    first = run_sweep(sweep, tmp_path, processes=1)
    made = files_of(tmp_path)
    again = run_sweep(sweep, tmp_path, processes=1)
    assert (again.run, again.taken_over, again.failed) == (3, 9, 3)
    assert again.table.equals(first.table)
    assert files_of(tmp_path) == made
    assert run_sweep(sweep, tmp_path, processes=1, again=True).run == 12
    assert files_of(tmp_path) == made


def test_what_is_missing_or_damaged_is_run_again(sweep: Sweep, tmp_path: Path) -> None:
    run_sweep(sweep, tmp_path, processes=1)
    made = files_of(tmp_path)
    gone, cut, wrong, *_ = sorted((tmp_path / "cells").iterdir())
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:50])
    wrong.write_text("[]", encoding="utf-8")
    assert run_sweep(sweep, tmp_path, processes=1).run == 3 + 3
    assert files_of(tmp_path) == made


def test_a_taken_over_cell_is_believed(sweep: Sweep, tmp_path: Path) -> None:
    run_sweep(sweep, tmp_path, processes=1)
    file = tmp_path / "cells" / f"{sweep.cells[0].key}.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    told["summary"]["mean_jct_s"] = 123.5
    file.write_text(json.dumps(told), encoding="utf-8")
    assert run_sweep(sweep, tmp_path, processes=1).table["mean_jct_s"][0] == 123.5


def test_an_interruption_keeps_what_is_finished(sweep: Sweep, tmp_path: Path) -> None:
    def interrupt(_cell: SweepCell, _outcome: CellOutcome) -> None:
        if len(list((folder / "cells").iterdir())) == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep, folder, processes=2, ended=interrupt)
    left = files_of(folder)
    assert len(left) == 2
    assert run_sweep(sweep, folder, processes=1).taken_over == 2
    assert left.items() <= files_of(folder).items()


def test_two_names_for_one_cluster_run_once(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        "{traces: [philly], jobs: 9, clusters: [1x2x4, {cluster: 1x2x4, link_gbps: 100}], policies: [titan]}",
        encoding="utf-8",
    )
    swept = run_sweep(read_sweep(path), tmp_path / "out", processes=1)
    assert swept.run == 1
    assert swept.table["cluster"].to_list() == ["1x2x4", "1x2x4 (link_gbps=100)"]


def dies_on_random(cell: SweepCell, inputs: SweepInputs) -> Scenario:
    """Stand for a cell that takes more memory than there is."""
    if cell.settings["policy"] == "random":
        os._exit(1)
    return cell.scenario(inputs)


def test_a_process_that_dies_takes_no_other_cell_with_it(sweep: Sweep) -> None:
    cells = [cell for cell in sweep.cells if cell.axes["trace"] == "philly" and cell.axes["cluster"] == "1x2x4"]
    ended: dict[int, CellOutcome] = {}
    outcomes = run_many(
        [partial(dies_on_random, cell) for cell in cells],
        keep=CellOutcome.of,
        failed=CellOutcome.failed,
        processes=2,
        shared=(sweep.inputs,),
        ended=ended.__setitem__,
    )
    assert [ended[number] for number in range(len(cells))] == outcomes
    for cell, outcome in zip(cells, outcomes, strict=True):
        died = outcome.reason == "its process died, perhaps for lack of memory"
        assert died == (cell.axes["policy"] == "random")
        assert died == (outcome == CellOutcome.failed(DiedError()))


def outcome_of(cell: SweepCell, inputs: SweepInputs) -> CellOutcome:
    outcome = run_scenario(cell.scenario, CellOutcome.of, None, CellOutcome.failed, inputs)
    assert isinstance(outcome, CellOutcome)
    return outcome


def test_a_fault_of_ours_is_told_in_one_line(sweep: Sweep) -> None:
    missing = outcome_of(sweep.cells[0], SweepInputs({}, {}, sweep.inputs.profiles))
    assert missing.reason is not None
    assert missing.reason.startswith("KeyError: ")
    assert "\n" not in missing.reason


def test_another_version_of_cranny_refuses_to_run_a_cell(sweep: Sweep) -> None:
    other = SweepCell({}, {**sweep.cells[0].settings, "cranny": "0.0.1"})
    assert "where the sweep was started it is 0.0.1" in str(outcome_of(other, sweep.inputs).reason)


def test_a_table_of_failures_only_has_no_measures(sweep: Sweep) -> None:
    made = table((cell, CellOutcome(reason="no")) for cell in sweep.cells)
    assert made.columns[-1] == "reason"
    assert [group.failed for group in groups(made)] == [1] * 12


def test_saving_leaves_no_draft_behind(sweep: Sweep, tmp_path: Path) -> None:
    CellStore(tmp_path).save(sweep.cells[0], {"x": 1.5})
    assert [file.name for file in (tmp_path / "cells").iterdir()] == [f"{sweep.cells[0].key}.json"]
    assert CellStore(tmp_path).load(sweep.cells[0]) == CellOutcome({"x": 1.5})


def test_seeds_are_gathered(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        "{traces: [philly], jobs: 20, clusters: [1x2x4], policies: [best-fit, random], seeds: 3}", encoding="utf-8"
    )
    made = run_sweep(read_sweep(path), tmp_path / "out", processes=1).table
    first, second = groups(made)
    assert first.axes == {"trace": "philly", "cluster": "1x2x4", "load": 0.8, "policy": "best-fit"}
    assert (first.done, first.failed, second.axes["policy"]) == (3, 0, "random")
    assert first.measures["mean_jct_s"].mean == pytest.approx(made["mean_jct_s"][:3].mean())


def test_without_ray_the_error_says_what_to_install(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CrannyError, match=r"needs 'ray': pip install 'cranny\[ray\]'"):
        run_sweep(sweep, tmp_path, ray="127.0.0.1:6379")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_a_ray_cluster_that_is_not_there_is_told_at_once(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with pytest.raises(CrannyError, match=f"Ray at {address} cannot be reached: "):
        run_sweep(sweep, tmp_path, ray=address)
