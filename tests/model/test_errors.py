"""Names that are not known: the nearest is suggested, but nothing far-fetched."""

import pytest

from cranny.model.errors import unknown

MACHINES = [f"rack{rack}-machine{machine}" for rack in range(8) for machine in range(8)]


@pytest.mark.parametrize(
    ("name", "near"),
    [("titn", "titan"), ("titan-", "titan"), ("jsp", "jps"), ("fifi", "fifo"), ("best", "best-fit")],
)
def test_the_nearest_name_is_suggested(name: str, near: str) -> None:
    known = ["titan", "jps", "fifo", "best-fit", "hived"]
    assert str(unknown("policy", name, known)) == f"unknown policy {name!r}; did you mean {near!r}?"


@pytest.mark.parametrize("name", ["nomachine", "gpu", "", "x" * 100])
def test_nothing_far_is_suggested(name: str) -> None:
    told = "known: rack0-machine0, rack0-machine1, rack0-machine2 and 61 more"
    assert str(unknown("machine", name, MACHINES)) == f"unknown machine {name!r}; {told}"
    assert str(unknown("order", name, ["sjf", "fifo"])) == f"unknown order {name!r}; known: fifo, sjf"


def test_a_machine_of_a_rack_is_near() -> None:
    assert str(unknown("machine", "rack9-machine3", MACHINES)).endswith("did you mean 'rack7-machine3'?")
