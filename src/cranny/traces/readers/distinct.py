"""Reading each distinct text of a column once: logs say the same few things in a million rows."""

from collections.abc import Callable
from typing import Any

import polars as pl

MOST_KNOWN = 4096  # texts; of a column that has more, further ones are read again


def of_distinct(text: pl.Expr, read: Callable[[pl.Expr], pl.Expr], dtype: pl.DataType) -> pl.Expr:
    """Return what `read` makes of each text, which must depend on nothing else; `dtype` is what it makes.

    A column comes in many small pieces, from several threads.
    """
    known: dict[str | None, Any] = {}

    def mapped(values: pl.Series) -> pl.Series:
        texts = values.to_list()
        new = [each for each in set(texts) if each not in known]
        frame = pl.DataFrame({"text": pl.Series(new, dtype=pl.String)})
        found = dict(zip(new, frame.select(read(pl.col("text"))).to_series(), strict=True)) if new else {}
        of_text = {**known, **found} if found else known
        if len(known) < MOST_KNOWN:
            known.update(found)
        return pl.Series([of_text[each] for each in texts], dtype=dtype)

    return text.map_batches(mapped, return_dtype=dtype, is_elementwise=True)
