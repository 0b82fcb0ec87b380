"""How well the replay of the log's scheduler predicts the log, and what policies are credited with, as tables."""

from collections.abc import Iterator, Mapping

import polars as pl

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.calibration import REPLAYED, Calibration, Prediction
from cranny.analysis.whatif.detail_tables import MOST_GROUPS, WAYS
from cranny.model.validate import percent
from cranny.report.scales import duration_text
from cranny.report.text_table import TextTable

CREDITED_BY = ("size", "partition", "user")  # others are in the exported tables


def calibration_tables(answer: WhatIfAnswer) -> list[TextTable]:
    """Return the tables, none if the log's scheduler was not replayed."""
    if answer.calibration is None:
        return []
    return [_credited(answer), _predicted(answer.calibration), _models(answer.calibration)]


def _credited(answer: WhatIfAnswer) -> TextTable:
    """Show the waits of the log, of the replay, and those that policies are credited with."""
    policies = [case.name for case in answer.policies]
    shown = [each.waits.wait.mean_s for each in (answer.was, answer.scheduler) if each is not None and each.waits]
    credited = [answer.credited_wait_s(case) or 0.0 for case in answer.policies]
    jobs = int(answer.details.waits.jobs.sum())
    rows = [["all jobs", f"{jobs:,}", *map(duration_text, [*shown, *credited])]]
    for by in CREDITED_BY:
        of_way = answer.details.credited.filter(pl.col("by") == by)
        if of_way["group"].n_unique() > 1:  # a single group is all jobs
            rows += _groups(of_way, WAYS.get(by, by))
    return TextTable(
        "Mean waits that policies are credited with",
        f"A wait of the log less what the policy waits less than {REPLAYED!r}, by size of job, partition and user "
        f"({MOST_GROUPS} of each with the most GPU-hours): what the replay already does otherwise than the log is "
        "not the policy's doing.",
        ("", "jobs", "logged", "replayed", *policies),
        rows,
    )


def _groups(credited: pl.DataFrame, way: str) -> Iterator[list[str]]:
    """Yield a row for each group of one kind, those with most GPU-hours."""
    for each in credited.partition_by("group", maintain_order=True)[:MOST_GROUPS]:
        first = each.row(0, named=True)
        waits = [first["logged_wait_s"], first["replayed_wait_s"], *each["credited_wait_s"]]
        yield [f"{way} {first['group']}", f"{first['jobs']:,}", *map(duration_text, waits)]


def _predicted(calibration: Calibration) -> TextTable:
    rows = [_prediction("all jobs", calibration.second_half)]
    for way, by in (("size of job", calibration.by_size), ("partition", calibration.by_partition)):
        rows += _some(way, by) if len(by) > 1 else ()
    return TextTable(
        "How well your scheduler is replayed",
        "In the second half of the log, with the model and the time of a start that fit the first half best.",
        ("", "jobs", "logged, mean", "replayed, mean", "error", "within a factor of 2"),
        rows,
    )


def _some(way: str, predictions: Mapping[str, Prediction]) -> Iterator[list[str]]:
    most = sorted(predictions.items(), key=lambda each: -each[1].jobs)[:MOST_GROUPS]
    for name, each in most:
        yield _prediction(f"{way} {name}", each)


def _prediction(name: str, found: Prediction) -> list[str]:
    waits = [duration_text(found.logged_mean_s), duration_text(found.mean_s)]
    return [name, f"{found.jobs:,}", *waits, percent(found.error), percent(found.within_factor)]


def _models(calibration: Calibration) -> TextTable:
    tried = sorted(calibration.tried.items(), key=lambda each: each[1])
    return TextTable(
        "Models of your scheduler",
        "By how much the wait of a job of the first half is missed, on average; the first is replayed.",
        ("jobs start", "missed by"),
        [[about, duration_text(miss_s)] for about, miss_s in tried],
    )
