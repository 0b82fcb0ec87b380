"""What a what-if assumes, and where its input is doubtful, in sentences."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.as_it_was import NEARLY_ALL, SHOWN_NAMES, AsItWas
from cranny.analysis.whatif.baseline import AS_IT_WAS, UNKNOWN, LoggedJobs
from cranny.analysis.whatif.prices import Prices
from cranny.analysis.whatif.skipped_presence import Presence
from cranny.model.cluster import Cluster
from cranny.model.validate import counted, percent
from cranny.sim.result import Result
from cranny.traces.inspect import Window
from cranny.traces.quirks import quirks
from cranny.traces.trace import Trace
from cranny.traces.type_matching import SKIPPED as UNKNOWN_TYPES

LONGER = 1.02  # from here on, running times are no longer those of the log
ENDED_EARLY = "(?i)cancel|kill|fail|timeout|preempt|not_pass"


def warnings(
    cluster: Cluster,
    trace: Trace,
    results: Sequence[Result],
    logged: LoggedJobs | None,
    was: AsItWas | None,
    window: Window,
) -> list[str]:
    """Say what is odd about the log, where it asks for more than the cluster has, and what it cannot answer."""
    found = [*_quirks(trace), *_of_places(was)]
    asked = _asked_gpus(trace, window)
    if asked > cluster.gpus:
        found.append(
            f"The log asks for {asked:,.0f} GPUs on average, the cluster has {cluster.gpus:,}: the queue grows to "
            "the end of the log, and waits say more about the log's length than about a policy."
        )
    if logged is not None and logged.peak_gpus > cluster.gpus:
        found.append(
            f"In the log up to {logged.peak_gpus:,} GPUs were held at once, the cluster has {cluster.gpus:,}: it "
            "is smaller than what the log comes from, or the log holds several clusters."
        )
    large = int((trace.frame["gpus"] > cluster.gpus).sum())
    if large:
        found.append(f"Skipped because they are larger than the cluster: {counted(large, 'job')}.")
    strange = trace.skipped.get(UNKNOWN_TYPES, 0)
    if strange:
        found.append(
            f"Skipped because the cluster has no GPUs of their type: {counted(strange, 'job')} of "
            f"{len(trace) + strange:,}. All figures are without them."
        )
    longer = 0.0
    for result in results:
        done = result.jobs.filter(pl.col("status") == "done")
        weights = (done["gpus"] * done["duration_s"]).to_numpy()
        stretch = float(np.average(done["slowdown"].to_numpy(), weights=weights)) if weights.sum() else 1.0
        longer = max(longer, stretch)
    if logged is not None and longer > LONGER:
        found.append(
            f"Running jobs take up to {longer:.2f} times the GPU-hours of the log, whose durations hold what "
            "communication cost then: compare policies with each other, or with the log by --network instant."
        )
    return found


def _asked_gpus(trace: Trace, window: Window) -> float:
    """Return the GPUs that jobs ask for on average; of a job in a window, what could run before its end."""
    frame = trace.frame
    if trace.window is None:
        return float((frame["gpus"] * frame["duration_s"]).sum()) / (window[1] - window[0])
    left_s = (window[1] - pl.col("submit_s")).clip(lower_bound=0.0)
    gpu_s = frame.select((pl.col("gpus") * pl.min_horizontal("duration_s", left_s)).sum()).item()
    return float(gpu_s) / (window[1] - trace.window.begin_s)


def delayed_work(answer: WhatIfAnswer) -> list[str]:
    """Name the policies under which work of the window runs after it, which would look like a saving."""
    late = ", ".join(case.name for case in answer.policies if case.name in answer.details.savings.late)
    why = (
        f"Over 1 % fewer GPU-hours run in {answer.span} than in the log, or in the replay of its scheduler, with "
        f"{late}, because jobs wait longer: machines that are idle for that are not counted as a saving."
    )
    return [why] if late else []


def beside_the_jobs(presence: Presence, cluster: Cluster, window: Window) -> list[str]:
    """Say what is made of machines on which jobs were that no row has."""
    hours = presence.machine_hours(cluster, window)
    said = (
        "Jobs that are skipped, on parts of GPUs or on none or of unknown types, were on machines of the cluster "
        f"for {hours:,.1f} machine-hours by the log. They would need a place under every policy: in every row "
        "these machines count as used at that time, never as off, and when machines are removed, they go last. "
        "The GPUs that they held count as free."
    )
    return [said] if hours > 0 else []


def _quirks(trace: Trace) -> Iterator[str]:
    """Say what `traces inspect` finds odd about the log."""
    for sentence in quirks(trace):
        yield f"About the log: {sentence}."


def _of_places(was: AsItWas | None) -> Iterator[str]:
    """Say which jobs of the log could not be placed where they ran, and whether the others are enough."""
    if was is None:
        return
    jobs = "; ".join(
        f"{counted(each.jobs, 'job')} {reason} ({each.gpu_hours:,.0f} GPU-hours)"
        for reason, each in was.unplaced.items()
    )
    if was.unknown_machines:
        names = ", ".join(was.unknown_machines[:SHOWN_NAMES])
        others = len(was.unknown_machines) - SHOWN_NAMES
        more = f" and {others:,} more" if others > 0 else ""
        jobs += f"; machines of the log that are not in the cluster: {names}{more}"
    if not was.is_known:
        yield (
            f"Where jobs ran is known for {percent(was.share, 1)} of the log's GPU-hours, less than "
            f"{percent(NEARLY_ALL)}: idle machines of that time are unknown, and no saving is shown. Missing: "
            f"{jobs}."
        )
    elif jobs:
        yield (
            f"Not in the row '{AS_IT_WAS}': {jobs}. Machines of the cluster that the log names for them count as "
            "used there, their GPUs as free."
        )
    if was.divided_otherwise:
        yield (
            f"How the GPUs of {counted(was.divided_otherwise, 'job')} were divided among their machines is taken "
            "from what was free there: evenly there was no room."
        )
    if was.held_twice:
        yield (
            f"{counted(was.held_twice, 'job')} found no free GPUs on their machines, since it is not known how "
            "those of jobs on several machines were divided. Which machines were in use is known all the same."
        )


def assumptions(
    trace: Trace,
    results: Sequence[Result],
    logged: LoggedJobs | None,
    was: AsItWas | None,
    compared: int,
    prices: Prices,
    went_on: int = 0,
) -> list[str]:
    """List what was assumed, from the log to the replay; `went_on` jobs ran on where they were at the begin."""
    notes = results[0].settings["trace_notes"]
    replayed = [*_of_the_replay(trace, results), *_of_the_time(trace, went_on), _of_machines(trace, prices)]
    return [*_of_the_log(trace, logged, was, compared), *replayed, *notes]


def _of_the_log(trace: Trace, logged: LoggedJobs | None, was: AsItWas | None, compared: int) -> Iterator[str]:
    """Say what the log lacks, and which jobs are not compared."""
    if logged is None:
        known = trace.frame["start_s"].count() if "start_s" in trace.frame.columns else 0
        few = f" of {len(trace) - known:,} of {counted(len(trace), 'job')}" if known else ""
        yield f"The start{few} is {UNKNOWN}: policies can only be compared with each other."
    else:
        yield f"The row '{AS_IT_WAS}' is from the log alone: jobs start as logged and end one duration later. " + (
            "They ran on the machines that the log names, on the lowest GPUs that were free there, with ranks in "
            "the order of its list."
            if was is not None and was.is_known
            else f"On which machines they ran is {UNKNOWN} or not enough of it, so fragmentation and idle "
            "machines of that time are unknown: what could have been off is not a saving, as it may "
            "have been idle anyway."
        )
        if logged.without_start:
            yield f"Replayed but not compared, without a start in the log: {counted(logged.without_start, 'job')}."
        if logged.early:
            clock = "started before their submission by the log's clock"
            yield f"Replayed but not compared, {clock}: {counted(logged.early, 'job')}."
    waited = "eligible" if "eligible_s" in trace.frame.columns else "submitted"
    yield (
        f"Waits and completion times are over the {counted(compared, 'job')} that ran in every row, from when "
        f"they were {waited}."
    )
    if "counted" in trace.frame.columns:
        before = len(trace) - int(trace.frame["counted"].sum())
        if before:
            yield f"Replayed but not compared, from before the window or its warm-up: {counted(before, 'job')}."
    if "reservation" in trace.frame.columns:
        reserved = len(trace) - trace.frame["reservation"].null_count()
        if 0 < reserved < len(trace):
            yield (
                "Replayed in the queue like others but not compared, because a reservation decided when they "
                f"started: {counted(reserved, 'job')}."
            )
    for reason, count in trace.skipped.items():
        yield f"Rows of the log skipped: {count:,}, {reason}."
    if "status" in trace.frame.columns:
        early = int(trace.frame["status"].cast(pl.String).str.contains(ENDED_EARLY).fill_null(value=False).sum())
        if early:
            yield (
                f"Cancelled, failed or out of time: {counted(early, 'job')}. Here they run as long as they did "
                "in the log and then end."
            )


def _of_the_replay(trace: Trace, results: Sequence[Result]) -> Iterator[str]:
    """Say what the replay makes of the jobs."""
    settings = results[0].settings
    unnamed = trace.frame["model"].null_count() if "model" in trace.frame.columns else len(trace)
    if unnamed:
        yield (
            f"The models of {counted(unnamed, 'job')} are {UNKNOWN} and drawn with seed {settings['seed']}; "
            "they matter to policies that look at traffic, and to running times unless the network is instant."
        )
    unnamed = trace.frame["collective"].null_count() if "collective" in trace.frame.columns else len(trace)
    if unnamed:
        yield (
            f"The collectives of {counted(unnamed, 'job')} are {UNKNOWN} and taken to be {settings['collective']} "
            "(--collective); they matter where the models do."
        )
    if settings["network"] == "instant":
        yield "Every job runs as long as the log says, wherever it is placed (--network instant)."
    else:
        yield (
            "Durations in the log are taken as those on one machine; a job spread over machines takes longer by "
            "its communication. With --network instant every job runs as long as the log says."
        )
    skipped = {str(each.settings["policy"]): each.jobs.filter(pl.col("status") != "done") for each in results}
    example = next((jobs.row(0, named=True) for jobs in skipped.values() if jobs.height), None)
    if example is not None:
        counts = ", ".join(
            f"{policy} {counted(jobs.height, 'job')}" for policy, jobs in skipped.items() if jobs.height
        )
        such_as = f"{example['job_id']}: {example['reason']}"
        yield f"Not replayed because they can never run here: {counts}; such as {such_as}."
    orders = {str(result.settings["policy"]): str(result.settings["order"]) for result in results}
    yield f"Queue orders: {', '.join(f'{policy} {order}' for policy, order in orders.items())}."
    if {"sjf", "srtf", "backfill"} & set(orders.values()):
        said = "limit_s" in trace.frame.columns and trace.frame["limit_s"].count() and settings["limits"]
        known = "the limit that its user asked for, where the log has it" if said else "how long it will run"
        yield f"sjf, srtf and backfill know of each job {known}."
    stops = {str(result.settings["policy"]): int(result.summary["restarts"]) for result in results}
    if any(stops.values()):
        counts = ", ".join(f"{policy} {count:,}" for policy, count in stops.items() if count)
        yield (
            f"Jobs are stopped and go on later, this often: {counts}. Each time a job loses {_restart(trace)} and "
            "waits again, which counts as waiting."
        )


def _of_the_time(trace: Trace, went_on: int) -> Iterator[str]:
    """Say what runs when the replay begins, what it leaves out, and over which time all is measured."""
    yield (
        f"{_begin(trace, went_on)} Quotas, fair share, reservations, failures and maintenance are not replayed, "
        "except for limits that the log shows; priorities are under backfill, if the log has them."
    )


def _of_machines(trace: Trace, prices: Prices) -> str:
    """Say over which time machines are measured, and when they are off."""
    edges = trace.window
    first, last = "the first", "the last submission (to the last end if all come in one burst)"
    if edges is not None:
        first = "the end of the warm-up" if edges.warm_up_s else "the begin of the window"
        last = last if edges.end_s is None else "its end" if not edges.warm_up_s else "the end of the window"
    boot = "Boots take the time and money that the prices say." if prices.boots else "A boot takes no time."
    return f"Machines, money and the largest job are measured from {first} to {last}. {prices.off_rule} {boot}"


def _begin(trace: Trace, went_on: int) -> str:
    """Say what runs when the replay begins."""
    if trace.window is None:
        return (
            "The cluster is empty at the first submission: jobs that ran before are not in the log, so the first "
            "waits are too short."
        )
    ran = int(trace.frame["running"].sum()) if "running" in trace.frame.columns else 0
    if not ran:
        return "The cluster is empty at the begin of the window: by the log no job ran then."
    there = f"{counted(went_on, 'job')} that ran when the window began run on where the log has them, in every row"
    anew = f"{counted(ran - went_on, 'job')} that ran then, where is {UNKNOWN} or not possible here"
    sentences = [f"{there}; to move one costs what it costs later."] if went_on else []
    if ran > went_on:
        sentences.append(f"{anew}, are placed anew by each policy, at no cost.")
    return " ".join(sentences)


def _restart(trace: Trace) -> str:
    """Say what jobs lose when they are stopped."""
    said_s = trace.frame["restart_s"].to_numpy()
    least_s, most_s = float(said_s.min()), float(said_s.max())
    return f"{least_s:g} s" if least_s == most_s else f"{least_s:g} to {most_s:g} s"
