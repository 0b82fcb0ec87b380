from functools import partial
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cranny
from cranny.cluster_import.from_log import guess_cluster, held_gpus, with_guessed_cluster
from cranny.model.errors import InputError
from cranny.traces.trace import Trace, TraceWindow
from cranny.traces.window import cut

ROWS = st.lists(
    st.tuples(
        st.integers(0, 20),  # start
        st.integers(1, 10),  # duration
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=3, unique_by=lambda x: x[0]
        ),
    ),
    min_size=1,
    max_size=12,
)


def log(*rows: tuple[float, float, int, str | None], **columns: list[str | None]) -> Trace:
    frame = pl.DataFrame(
        {
            "job_id": [f"j{i}" for i in range(len(rows))],
            "submit_s": [0.0] * len(rows),
            "start_s": [float(row[0]) for row in rows],
            "duration_s": [float(row[1]) for row in rows],
            "gpus": [row[2] for row in rows],
            "ran_on": [row[3] for row in rows],
            **columns,
        }
    )
    return Trace.from_frame(frame, "log.csv")


def test_the_most_gpus_held_at_once_with_types_and_partitions() -> None:
    trace = log(
        (0, 10, 8, "n2:4 n10:4"),
        (5, 10, 4, "n2:4"),
        (10, 5, 4, "n10:4"),  # when the first has ended
        (0, 1, 3, "n3 n4"),  # 2 and 1
        (0, 1, 1, None),
        gpu_type=["a100", "A100", "a100", "v100", None],
        partition=["main", "main", "debug", None, "main"],
    )
    found = guess_cluster(trace)
    machines = [(each.name, each.gpus, each.gpu_type) for each in found.cluster.machines]
    assert machines == [("n2", 8, "a100"), ("n3", 2, "v100"), ("n4", 1, "v100"), ("n10", 4, "a100")]
    assert found.cluster.partitions == {"main": (0, 3), "debug": (3,)}
    assert "a lower bound" in found.notes[0]
    assert any(note.startswith("1 job without a start, or without where it ran") for note in found.notes)
    assert not any("several types" in note for note in found.notes)
    bound = "Partitions have the machines on which their jobs ran, a lower bound: jobs are placed nowhere else."
    assert bound in found.notes
    assert f"# {bound}" in found.yaml()


def test_a_machine_that_held_fewer_than_its_like_is_marked() -> None:
    found = guess_cluster(log((0, 1, 8, "a"), (0, 1, 8, "b"), (0, 1, 6, "c")))
    assert found.remarks["c"] == "at least; others of its kind held 8"
    assert "# at least; others of its kind held 8" in found.yaml()


def test_a_queue_of_kubernetes_is_no_set_of_machines() -> None:
    found = guess_cluster(log((0, 10, 8, "n1:8"), (0, 10, 8, "n2:8"), queue=["research", "teaching"]))
    assert found.cluster.partitions == {}
    assert not any("Partitions" in note for note in found.notes)


def test_the_whole_log_says_which_machines_there_are_and_not_only_its_window() -> None:
    trace = log((0, 10, 8, "n1:8"), (20, 10, 4, "n2:4"), (20, 10, 8, "n3:8"), (40, 10, 8, "n2:8"))
    cluster, cut_trace = with_guessed_cluster(trace, partial(cut, from_s=15, to_s=35))
    assert [(each.name, each.gpus) for each in cluster.machines] == [("n1", 8), ("n2", 8), ("n3", 8)]
    assert cut_trace.window == TraceWindow(0.0, 20.0)
    assert any(note.startswith("1 machine without a job in the window: taken as idle") for note in cut_trace.notes)
    assert any(note.endswith(": n1.") for note in cut_trace.notes)
    assert not any("in the window" in note for note in with_guessed_cluster(trace)[1].notes)


@given(ROWS)
def test_it_is_the_most_of_every_moment(rows: list[tuple[int, int, list[tuple[str, int]]]]) -> None:
    trace = log(
        *(
            (start, length, sum(held for _, held in where), " ".join(f"{name}:{held}" for name, held in where))
            for start, length, where in rows
        )
    )
    slow: dict[str, int] = {}
    for moment in range(31):
        now: dict[str, int] = {}
        for start, length, where in rows:
            for name, held in where if start <= moment < start + length else ():
                now[name] = now.get(name, 0) + held
        slow = {name: max(slow.get(name, 0), now.get(name, 0)) for name in {*slow, *now}}
    assert {each.name: each.gpus for each in guess_cluster(trace).cluster.machines} == slow
    assert held_gpus(trace)["gpus"].sum() == sum(held for _, _, where in rows for _, held in where)


def test_a_log_that_does_not_say_where_jobs_ran() -> None:
    with pytest.raises(InputError, match=r"log.csv: does not say on which machines jobs ran: give the cluster"):
        guess_cluster(log((0, 1, 8, None)))
    plain = Trace.from_frame(pl.DataFrame({"job_id": ["a"], "submit_s": [0.0], "gpus": [1], "duration_s": [1.0]}))
    with pytest.raises(InputError, match="does not say on which machines"):
        guess_cluster(plain)


def test_what_if_needs_no_cluster_if_the_log_says_where_jobs_ran(tmp_path: Path) -> None:
    trace = log((0, 100, 8, "n1:8"), (50, 100, 8, "n2:8"), (150, 100, 16, "n1:8 n2:8"))
    path = tmp_path / "log.csv"
    trace.write(path)
    answer = cranny.what_if(path, policies=["best-fit"], search=False, processes=1)
    assert answer.cluster.describe() == "from-log: 1 rack, 2 machines x 8 GPUs, 16 GPUs"
    assert any("a lower bound" in line for line in answer.assumptions)
