"""What a window of a log means to a what-if: the time that is measured, and the jobs that ran when it began."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

import polars as pl

from cranny.analysis.whatif.as_it_was import AsItWas
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.report.occupancy import map_span_s
from cranny.report.scales import duration_text
from cranny.sim.held_before import HeldBefore, placed_before
from cranny.sim.result import Result
from cranny.traces.inspect import Window
from cranny.traces.trace import Trace


def measured_time(trace: Trace, results: Sequence[Result]) -> Window:
    """Return the time over which machines and money are measured.

    That is the window that the log was cut to, without its warm-up; else from the first to the last submission, or
    to the last end if all come in one burst.
    """
    first_s, last_s = map_span_s(results)
    edges = trace.window
    if edges is None:
        return first_s, last_s
    begin_s = edges.begin_s + edges.warm_up_s
    end_s = last_s if edges.end_s is None else edges.end_s
    if end_s <= begin_s:
        lost = f" and its warm-up of {duration_text(edges.warm_up_s)}" if edges.warm_up_s else ""
        raise InputError(f"{trace.name}: no job is submitted after the begin of the window{lost}")
    return begin_s, end_s


def held_at_begin(trace: Trace, was: AsItWas | None, cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return the GPUs that jobs held when the window began, by job and machine, as far as the log says."""
    if was is None or "running" not in trace.frame.columns:
        return {}
    running = trace.frame["running"].fill_null(value=False).gather(was.row)
    held = was.runs.filter(running).select("job_id", "machine", pl.col("gpus").bitwise_count_ones())
    found: dict[str, dict[str, int]] = {}
    for job_id, machine, gpus in held.iter_rows():
        found.setdefault(job_id, {})[cluster.machines[machine].name] = gpus
    return found


def went_on(cluster: Cluster, held: HeldBefore, jobs: Iterable[Job]) -> int:
    """Return how many jobs go on where they were when the window began, in every replay."""
    first = takewhile(lambda job: job.submit_s == 0.0, jobs)
    return len(placed_before(cluster, held, list(first))) if held else 0
