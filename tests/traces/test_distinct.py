"""Each distinct text of a column is read once, with the same outcome as reading every row."""

import polars as pl
import pytest

from cranny.traces.readers import distinct
from cranny.traces.readers.timestamps import limit_s

TEXTS = ["1-00:00:00", None, "90", "UNLIMITED", "", "02:30:00", "90", None, "2-12"] * 50


@pytest.mark.parametrize("most_known", [0, 2, 4096])
def test_the_outcome_is_that_of_reading_every_row(monkeypatch: pytest.MonkeyPatch, most_known: int) -> None:
    monkeypatch.setattr(distinct, "MOST_KNOWN", most_known)
    frame = pl.DataFrame({"limit": TEXTS})
    once = frame.lazy().select(distinct.of_distinct(pl.col("limit"), limit_s, pl.Float64()))
    expected = frame.select(limit_s(pl.col("limit")).alias("limit"))
    assert once.collect(engine="streaming").equals(expected)
    assert once.collect().equals(expected)
