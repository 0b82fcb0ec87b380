"""Numbers as people write them."""

import pytest

from cranny.model.validate import percent


@pytest.mark.parametrize(
    ("share", "places", "text"),
    [(0.125, 0, "12 %"), (0.125, 1, "12.5 %"), (-0.0004, 0, "0 %"), (-0.0004, 1, "0.0 %"), (-0.25, 0, "-25 %")],
)
def test_a_share_is_written_as_percent(share: float, places: int, text: str) -> None:
    assert percent(share, places) == text
