"""Accounting logs of PBS; the true values of the sample were worked out by hand."""

from pathlib import Path
from typing import Any

import pytest

from cranny.model.errors import InputError
from cranny.traces.read import find_format, read_trace

SAMPLE = Path(__file__).parent / "samples" / "pbs.txt"
ZERO = 1_714_550_400  # the first submission of the sample


def row(job_id: str) -> dict[str, Any]:
    frame = read_trace(SAMPLE).frame.filter(job_id=job_id)
    assert frame.height == 1
    return frame.row(0, named=True)


def test_a_job_has_its_machines_queue_and_limit() -> None:
    found = row("101")
    assert (found["ran_on"], found["machines"], found["gpus"]) == ("g01:4 g02:4", 2, 8)
    assert (found["user"], found["account"], found["partition"]) == ("ann", "P1", "gpu")
    assert (found["start_s"], found["end_s"], found["limit_s"]) == (60.0, 3660.0, 14400.0)
    assert (found["status"], found["cluster"]) == ("Completed", "pbs1")
    assert read_trace(SAMPLE).zero_epoch_s == ZERO


def test_a_requeued_job_has_a_row_for_each_attempt_and_parts_of_a_machine_are_one() -> None:
    first, second = row("102"), row("102@2")
    assert (first["ran_on"], first["status"], first["gpu_type"], first["eligible_s"]) == (
        "g03:2",
        "Requeued",
        "a100",
        10.0,
    )
    assert (second["submit_s"], second["eligible_s"], second["start_s"]) == (300.0, 300.0, 360.0)
    assert (second["ran_on"], second["status"], second["attempt"]) == ("g04:2", "Failed", 2)


def test_a_start_without_an_end_still_runs() -> None:
    assert (row("103")["end_s"], row("103")["ran_on"]) == (None, "g04:1")


def test_torque_names_machines_of_cores_and_gpus_of_each() -> None:
    assert (row("106")["gpus"], row("106")["ran_on"]) == (4, "t1:2 t2:2")


RECORD = (
    "05/01/2024 08:30:00;E;1.pbs1;user=ann queue=gpu ctime=1714550400 etime=0 start=1714550500 {asked} "
    "end=1714552200 Exit_status=0\n"
)


@pytest.mark.parametrize(
    ("asked", "gpus", "ran_on"),
    [
        ("exec_host=a/0 Resource_List.select=2:ncpus=4:ngpus=4+1:ngpus=2", 10, "a:10"),
        ("exec_host=a/0 Resource_List.select=ngpus=4:ncpus=4", 4, "a:4"),
        ("exec_host=a/0+b/0+c/0 exec_vnode=(a:ncpus=1)+(b:ncpus=1)+(c:ncpus=1) Resource_List.ngpus=4", 4, "a b c"),
        ("Resource_List.nodes=1:ppn=4:gpus=2+1:ppn=2", 2, None),
    ],
)
def test_gpus_are_counted_where_they_are_said(tmp_path: Path, asked: str, gpus: int, ran_on: str | None) -> None:
    path = tmp_path / "20240501"
    path.write_text(RECORD.format(asked=asked), encoding="utf-8")
    assert find_format(path) == "pbs"
    found = read_trace(path).frame.row(0, named=True)
    assert (found["gpus"], found["ran_on"]) == (gpus, ran_on)


def test_wrong_values_are_named_with_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "20240501"
    path.write_text(
        RECORD.format(asked="Resource_List.ngpus=2").replace("end=1714552200", "end=soon"), encoding="utf-8"
    )
    with pytest.raises(InputError) as caught:
        read_trace(path, strict=True)
    assert str(caught.value).startswith(f"{path}:1: end: must be a time")


def test_values_may_have_spaces_and_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "20240501"
    said = 'account="deep learning" jobname=a;b exec_vnode=(a:ngpus=2)'
    path.write_text(RECORD.format(asked=said), encoding="utf-8")
    trace = read_trace(path)
    assert trace.frame.select("job_id", "account", "gpus", "ran_on").rows() == [("1", "deep learning", 2, "a:2")]
    assert trace.skipped == {}
