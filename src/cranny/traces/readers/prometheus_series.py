"""Time series that were saved from Prometheus, or from a database that answers as it does.

A file has one or more JSON documents, one after the other: answers of `/api/v1/query_range` or `/api/v1/query`,
what `promtool query range --format json` prints, or lines of VictoriaMetrics' `/api/v1/export`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cranny.model.errors import InputError
from cranny.traces.readers.json_log import load_all, mapping, number, objects, text

MS = 1000.0


class Series(NamedTuple):
    """A time series; its samples are in the order of time."""

    name: str
    labels: Mapping[str, str]
    at_s: Sequence[float]  # since 1970
    values: Sequence[float]


def read_series(path: Path) -> Iterator[Series]:
    """Yield the series of a file that have a name and samples."""
    for place, document in enumerate(load_all(path), start=1):
        for entry in _entries(path, place, document):
            labels = {key: word for key, value in mapping(entry.get("metric")).items() if (word := text(value))}
            samples = _samples(entry)
            name = labels.pop("__name__", None)
            if name is not None and samples:
                at_s, values = zip(*samples, strict=True)
                yield Series(name, labels, at_s, values)


def _entries(path: Path, place: int, document: object) -> list[dict[str, Any]]:
    """Return the series of one document."""
    if isinstance(document, list):
        return objects(document)
    answer = mapping(document)
    if answer.get("status") == "error":
        raise InputError(f"{path}: document {place}: the query failed: {text(answer.get('error')) or 'no reason'}")
    if "metric" in answer:
        return [answer]
    data = mapping(answer.get("data"))
    if data.get("resultType") not in ("matrix", "vector"):
        wanted = "must be the answer to a range query (resultType matrix)"
        raise InputError(f"{path}: document {place}: {wanted}, as /api/v1/query_range gives it")
    return objects(data.get("result"))


def _samples(entry: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the samples of a series that are numbers, in the order of time."""
    values, times = entry.get("values"), entry.get("timestamps")
    if isinstance(times, list) and isinstance(values, list):
        pairs = [((number(at_ms) or math.nan) / MS, number(value)) for at_ms, value in zip(times, values)]  # noqa: B905
    else:
        listed = values if isinstance(values, list) else [entry.get("value")]
        given = [each for each in listed if isinstance(each, list) and len(each) == 2]
        pairs = [(number(at_s) or math.nan, number(value)) for at_s, value in given]
    found = [(at_s, value) for at_s, value in pairs if value is not None and math.isfinite(at_s + value)]
    return sorted(found)
