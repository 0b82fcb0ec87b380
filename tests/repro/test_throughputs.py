import pytest

from cranny.model.errors import InputError
from cranny.repro.has.throughputs import source, sources


def test_every_source_says_where_its_numbers_come_from_and_what_is_missing() -> None:
    for known in sources().values():
        assert known.kind in ("measured", "published")
        assert known.source
        assert known.missing
        assert all(rate > 0 for row in known.models.values() for rate in row.values())


def test_knows_the_throughputs_of_the_motivating_example() -> None:
    assert source("has-jps").models["resnet18"] == {"t4": 275, "v100": 644}
    assert source("has-jps").models["vgg19"] == {"t4": 884, "v100": 1754}


def test_every_type_that_clusters_mix_has_a_throughput() -> None:
    known = {kind for each in sources().values() for row in each.models.values() for kind in row}
    assert known >= {"t4", "p100", "v100", "a100", "h100", "h200"}


@pytest.mark.parametrize("name", ["lambda-mixed", "lambda-full"])
def test_later_types_are_faster_in_one_source(name: str) -> None:
    assert source(name).kind == "published"
    for row in source(name).models.values():
        assert row["v100"] < row["a100"] < row["h100"]


def test_what_we_measured_is_marked_so() -> None:
    assert source("cranny").kind == "measured"
    assert source("cranny").models["resnet50"]["h200"] == pytest.approx(256 / 0.05485, rel=0.01)


def test_suggests_a_source() -> None:
    with pytest.raises(InputError, match="did you mean 'gavel'"):
        source("gavle")
