"""Idle GPUs beside jobs, second by second."""

from collections.abc import Sequence

import polars as pl

from cranny.model.cluster import Machine


def idle_by_seconds(runs: pl.DataFrame, machines: Sequence[Machine], window: tuple[int, int]) -> dict[str, float]:
    """Divide what is idle on each machine in each second among the jobs there; all times must be whole seconds."""
    hours: dict[str, float] = dict.fromkeys(runs["job_id"], 0.0)
    rows = runs.rows(named=True)
    for at_s in range(*window):
        for index, machine in enumerate(machines):
            there = [run for run in rows if run["machine"] == index and run["start_s"] <= at_s < run["end_s"]]
            idle = machine.gpus - sum(int(run["gpus"]).bit_count() for run in there)
            for run in there:
                hours[run["job_id"]] += idle / len(there) / 3600
    return hours
