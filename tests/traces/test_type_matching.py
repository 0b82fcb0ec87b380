from collections.abc import Sequence

import polars as pl
import pytest

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.run import run, simulate
from cranny.scenario import Scenario
from cranny.traces.trace import Trace
from cranny.traces.type_matching import SKIPPED, with_types_of


def trace(**columns: Sequence[str | None]) -> Trace:
    rows = len(next(iter(columns.values())))
    plain = {"job_id": [f"j{i}" for i in range(rows)], "submit_s": [0.0] * rows, "duration_s": [60.0] * rows}
    frame = pl.DataFrame({**plain, "gpus": [1] * rows, **columns})
    return Trace.from_frame(frame.cast(dict.fromkeys(columns, pl.String)), "log.csv")


def cluster(*types: str) -> Cluster:
    machines = tuple(Machine(f"m{i}", 8, each) for i, each in enumerate(types))
    return Cluster.of(Switch("lab", machines, (100.0,) * len(machines)))


def test_types_are_matched_without_case_and_by_alias() -> None:
    asked = ["A100", "a100", "NVIDIA-A100-SXM4-80GB", "Tesla V100", None]
    made = with_types_of(trace(gpu_type=asked), {"a100", "v100", ""})
    assert made.frame["gpu_type"].to_list() == ["a100", "a100", "a100", "v100", None]
    assert len(made.notes) == 1
    assert "A100 -> a100 (1 job)" in made.notes[0]
    assert made.skipped == {}
    again = with_types_of(made, {"a100", "v100"})
    assert again is made  # so that a scenario can be made from another


def test_a_type_that_the_cluster_has_not_is_an_error_with_a_suggestion() -> None:
    log = trace(gpu_type=["h100", "h100", "a100", "A10G-24GB"])
    with pytest.raises(InputError) as raised:
        with_types_of(log, {"a100", "a10g-48gb"})
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith("log.csv: gpu_type: 'h100' is not in the cluster, which has a100, a10g-48gb (2 jobs)")
    assert "'A10G-24GB' is not in the cluster, did you mean 'a10g-48gb'? (1 job)" in text
    assert text.endswith("--skip-unknown-types (in Python skip_unknown_types=True)")


def test_a_type_that_can_be_several_is_an_error() -> None:
    with pytest.raises(InputError, match=r"'a100' can be 'a100-40gb' or 'a100-80gb' \(1 job\)"):
        with_types_of(trace(gpu_type=["a100"]), {"a100-40gb", "a100-80gb"})


def test_jobs_of_unknown_types_are_skipped_when_asked() -> None:
    made = with_types_of(trace(gpu_type=["A100", "h100", None]), {"a100"}, skip_unknown=True)
    assert made.frame["job_id"].to_list() == ["j0", "j2"]
    assert made.skipped == {SKIPPED: 1}
    assert "1 job skipped for their type of GPU: 'h100' is not in the cluster" in made.notes[-1]
    with pytest.raises(InputError, match="no job asks for a type of the cluster"):
        with_types_of(trace(gpu_type=["h100"]), {"a100"}, skip_unknown=True)


def test_a_cluster_without_types_ignores_them() -> None:
    made = with_types_of(trace(gpu_type=["A100"], speeds=["A100=1"]), {""})
    assert not {"gpu_type", "speeds"} & set(made.frame.columns)
    assert "ignored" in made.notes[-1]


def test_speeds_are_renamed_and_need_one_type_of_the_cluster() -> None:
    log = trace(speeds=["T4=0.43 V100-SXM2=1 K80=0.1", "t4=1", None, "K80=1"])
    with pytest.raises(InputError, match="'K80=1' is not in the cluster"):
        with_types_of(log, {"t4", "v100"})
    made = with_types_of(log, {"t4", "v100"}, skip_unknown=True)
    assert made.frame["speeds"].to_list() == ["t4=0.43 v100=1 K80=0.1", "t4=1", None]


def test_a_scenario_loses_no_job_to_the_case_of_a_type() -> None:
    log = trace(gpu_type=["A100"] * 18 + ["v100"] * 7)
    result = simulate(cluster("a100", "V100"), log, "best-fit")
    assert result.summary["jobs_done"] == 25
    assert result.summary["jobs_skipped"] == 0
    with pytest.raises(InputError, match="'v100' is not in the cluster"):
        simulate(cluster("a100"), log, "best-fit")
    result = simulate(cluster("a100"), log, "best-fit", skip_unknown_types=True)
    assert result.settings["trace_skipped"] == {SKIPPED: 7}


def test_on_a_smaller_cluster_a_job_whose_type_is_gone_is_skipped_not_refused() -> None:
    scenario = Scenario(cluster("a100", "V100"), trace(gpu_type=["A100", "v100"]), "best-fit")
    result = run(scenario.on_cluster(cluster("a100")))
    assert (result.summary["jobs_done"], result.summary["jobs_skipped"]) == (1, 1)
