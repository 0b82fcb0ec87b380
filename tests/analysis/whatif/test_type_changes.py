"""Machines of one type more or fewer, in clusters that have several."""

import polars as pl
import pytest

import cranny
from cranny.analysis.whatif.resized_cluster import resized
from cranny.analysis.whatif.type_changes import TypeChange, wanted_changes
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError

MIXED = Cluster.of(
    Switch(
        "lab",
        (
            Switch("r0", (Machine("a", 8, "h100"), Machine("b", 4, "v100")), (100.0, 25.0)),
            Switch("r1", (Machine("c", 8, "h100"), Machine("d", 8, "h100")), (100.0, 100.0)),
        ),
        (400.0, 400.0),
    )
)


def names(cluster: Cluster) -> list[str]:
    return [machine.name for machine in cluster.machines]


def test_only_machines_of_the_type_go_from_the_rack_that_has_most() -> None:
    assert names(resized(MIXED, -1, "h100")) == ["a", "b", "c"]
    assert names(resized(MIXED, -2, "h100")) == ["a", "b"]
    assert names(resized(MIXED, -3, "h100")) == ["b"]
    assert names(resized(MIXED, -1, "v100")) == ["a", "c", "d"]
    with pytest.raises(InputError, match="cannot remove 2 of 1 machine"):
        resized(MIXED, -2, "v100")


def test_new_machines_are_of_the_type_and_in_its_racks() -> None:
    more = resized(MIXED, 2, "v100")
    assert [(each.name, each.gpus, each.gpu_type) for each in more.machines if "more" in each.name] == [
        ("b-more1", 4, "v100"),
        ("b-more2", 4, "v100"),
    ]
    assert {more.rack_of[at] for at, each in enumerate(more.machines) if "more" in each.name} == {0}
    with pytest.raises(InputError, match="no machine that the new ones could be like"):
        resized(MIXED, 1, "a100")


def test_machines_that_others_need_go_last() -> None:
    assert names(resized(MIXED, -1, last={1})) == ["a", "b", "c"]
    assert names(resized(MIXED, -3, last={3, 0})) == ["a"]


def test_without_wishes_a_few_of_each_type_are_tried_if_there_are_several() -> None:
    assert wanted_changes(MIXED, []) == [(1, "h100"), (-1, "h100"), (1, "v100"), (-1, "v100")]
    assert wanted_changes(Cluster.fat_tree(2, 2, 8), []) == []


def test_types_are_found_without_case_and_what_cannot_be_is_refused() -> None:
    assert wanted_changes(MIXED, [TypeChange(-1, "NVIDIA-H100"), TypeChange(2)]) == [(-1, "h100"), (2, None)]
    with pytest.raises(InputError, match="type of GPU 'a100'"):
        wanted_changes(MIXED, [TypeChange(1, "a100")])
    with pytest.raises(InputError, match="cannot remove 2 of 1 machine of v100"):
        wanted_changes(MIXED, [TypeChange(-2, "v100")])
    with pytest.raises(InputError, match="cannot remove 4 of 4 machines"):
        wanted_changes(MIXED, [TypeChange(-4)])


def test_what_a_change_does_to_all_jobs_and_to_those_of_its_type() -> None:
    """Three jobs of 8 V100 on two machines of four wait 0, 100 and 200 s; with two more, two run at once."""
    cluster = Cluster.of(
        Switch(
            "rack",
            (Machine("a", 8, "h100"), Machine("b", 4, "v100"), Machine("c", 4, "v100")),
            (100.0, 100.0, 100.0),
        )
    )
    table = pl.DataFrame(
        {
            "job_id": ["1", "2", "3", "4"],
            "submit_s": [0.0, 0.0, 0.0, 0.0],
            "gpus": [8, 8, 8, 8],
            "duration_s": [100.0, 100.0, 100.0, 100.0],
            "gpu_type": ["v100", "v100", "v100", "h100"],
        }
    )
    answer = cranny.what_if(
        cranny.Trace.from_frame(table),
        cluster,
        ["best-fit"],
        search=False,
        processes=1,
        resize=[(2, "V100"), (-1, "v100"), (-1, "h100")],
    )
    more, fewer, none = answer.type_changes
    assert (more.gpu_type, more.machines, more.of) == ("v100", 2, 2)
    assert (more.before_s, more.after_s) == (75.0, 25.0)  # of all four jobs
    assert (more.own_jobs, more.own_before_s) == (3, 100.0)
    assert more.own_after_s == pytest.approx(100 / 3)
    assert (fewer.lost_jobs, fewer.own_jobs, fewer.own_after_s) == (3, 0, None)
    assert (fewer.before_s, fewer.after_s) == (0.0, 0.0)  # of the job that is left
    assert (none.lost_jobs, none.own_jobs) == (1, 0)
    assert none.after_s == 100.0
    sheet = next(each for each in answer.tables if each.title == "Machines of one type more or fewer")
    assert [row[0] for row in sheet.rows] == ["+2 v100", "-1 v100", "-1 h100"]
    assert sheet.rows[0][2:] == ["1.2 min", "25 s", "3", "1.7 min", "33 s", "0"]
    assert answer.facts()["type_changes"][0]["after_s"] == 25.0
