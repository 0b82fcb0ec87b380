"""Advice in plain sentences: the workload, the verdict, the reasons, the costs, and how sure it is."""

from collections.abc import Iterator
from typing import Any

from cranny.analysis.advise.advice import Advice
from cranny.analysis.advise.comparison import SAME, PolicyComparison, PolicyRatio
from cranny.analysis.advise.policy_outcome import METRICS, PolicyOutcome
from cranny.analysis.advise.workload import LONGEST
from cranny.model.validate import counted, percent
from cranny.report.scales import duration_text
from cranny.report.text_table import TextTable

KNOW_DURATIONS = frozenset({"sjf", "srtf", "backfill"})  # queue orders
FEW = 0.05  # a share of GPU-hours below which large jobs hardly matter
WORTH_A_WORD = 0.05  # a difference that may be chance is named from here on
MATTERS = 0.02  # a difference between slowdowns that is worth a word
WAIT_S = 60.0  # a mean wait below which hardly any job waits


def facts_and_sentences(advice: Advice) -> dict[str, Any]:
    """Return the advice as plain values with its sentences, for JSON."""
    said = {"verdict": verdict(advice), "reasons": reasons(advice), "costs": costs(advice)}
    return {**advice.facts(), **said}


def workload_lines(advice: Advice) -> list[str]:
    """Say what the workload is like."""
    load = advice.workload
    part = f" of {advice.whole_jobs:,}, a stretch with a load like the whole" if advice.carried else ""
    part += f", of which {advice.carried:,} ran already when it began" if advice.carried else ""
    several = (
        f"{percent(load.several_machines_jobs, 1)} of the jobs and {percent(load.several_machines_gpu_hours)} of"
    )
    longest = f"the longest {percent(LONGEST)} hold {percent(load.longest_gpu_hours)} of the GPU-hours"
    lines = [
        f"{counted(load.jobs, 'job')}{part}, {load.days:,.1f} days, {load.gpu_hours:,.0f} GPU-hours",
        f"on {advice.cluster}",
        f"asks for {percent(load.load)} of the GPUs on average, {percent(load.peak_load)} at most at once",
        f"{several} the GPU-hours need more than one machine of {load.machine_gpus} GPUs",
        f"half of the jobs run for {duration_text(load.median_duration_s)} or less; {longest}",
    ]
    more = []
    if load.tenants > 1:
        more.append(f"{load.tenants} tenants")
    if load.gpu_types > 1:
        more.append(f"{load.gpu_types} types of GPU")
    if load.elastic_jobs:
        more.append(f"{percent(load.elastic_jobs)} of the jobs can be resized")
    return [*lines, ", ".join(more)] if more else lines


def results_table(advice: Advice) -> TextTable:
    """Return the policies side by side, the best first; `*` marks the least of a column."""
    least = {name: min(advice.values[each][name] for each in advice.ranking) for name in METRICS}
    overall = {advice.best: 1.0} | {each.policy: each.overall.ratio for each in advice.comparisons}
    rows = []
    for policy in advice.ranking:
        values, outcome = advice.values[policy], advice.outcomes[policy]
        cells = [
            _value(name, values[name]) + ("*" if _value(name, values[name]) == _value(name, least[name]) else "")
            for name in METRICS
        ]
        stops = outcome.summary["restarts"]
        rows.append([policy, f"{overall[policy]:.2f}", *cells, f"{stops:,.0f}"])
    return TextTable(
        "Policies on this log",
        "Overall: the geometric mean over what decides, as a multiple of the first. Slowdown: completion time "
        f"over duration. A restart costs {advice.restart_s:g} s. * least of its column.",
        ("policy", "overall", *(metric.label for metric in METRICS.values()), "restarts"),
        rows,
    )


def _value(name: str, value: float) -> str:
    if METRICS[name].unit == "s":
        return duration_text(value)
    return f"{value:,.0f}" if METRICS[name].unit == "h" else f"{value:,.2f}"


def verdict(advice: Advice) -> list[str]:
    """Say which policy, by how much it leads, and how sure that is."""
    best = advice.best
    if not advice.comparisons:
        return [f"{best} is the only policy that ran, so there is nothing to compare it with."]
    names = [each.policy for each in advice.rivals]
    if advice.clear:
        first = f"{best} suits this log best, beyond doubt (95 %)."
    elif not advice.parts:
        first = (
            f"{best} comes first, but {counted(advice.workload.jobs, 'job')} are too few to say how sure that is."
        )
    else:
        first = (
            f"No clear winner: {best} comes first, but {_and(names)} cannot be distinguished from it on this log."
        )
    lines = [first, *(_against(best, each) for each in advice.comparisons[:2])]
    losses = [_loss(advice, name) for name in METRICS]
    lines += [line for line in losses if line]
    if best != "cranny" and "cranny" in advice.outcomes:
        own = next(each for each in advice.comparisons if each.policy == "cranny")
        lines.append(
            f"cranny, the policy of this project, does not lead here: overall it has {_times(own.overall)}."
        )
    if advice.parts:
        lines.append(
            f"Intervals are from drawing {advice.parts} consecutive parts of the log again and again, the same "
            "for all policies; another log, or other months of this one, may differ by more."
        )
    return lines


def _against(best: str, other: PolicyComparison) -> str:
    """Say what the best policy gains against another."""
    parts = [f"{METRICS[name].label} {_times(lead)}" for name, lead in other.metrics.items()]
    return f"{other.policy} has, against {best}: {', '.join(parts)}; overall {_times(other.overall)}."


def _loss(advice: Advice, metric: str) -> str:
    """Say where the best policy is not the best."""
    least = min(advice.ranking, key=lambda policy: advice.values[policy][metric])
    if least == advice.best:
        return ""
    lead = next(each.metrics[metric] for each in advice.comparisons if each.policy == least)
    if lead.ratio > 1.0 - (SAME if lead.certain else WORTH_A_WORD):
        return ""
    sure = "" if lead.certain or lead.low is None else ", which may be chance"
    return f"In {METRICS[metric].label} {least} is ahead of {advice.best}: it has {_times(lead)}{sure}."


def reasons(advice: Advice) -> list[str]:
    """Say what of the workload decides."""
    return [*_network(advice), *_queue(advice), *_lengths(advice), *_machines(advice), *_kinds(advice)]


def _network(advice: Advice) -> Iterator[str]:
    load = advice.workload
    share = percent(load.several_machines_gpu_hours)
    (least, lean), (most, wide) = _ends(advice, "mean_comm_slowdown")
    spread = f"communication makes jobs {least:.2f} ({lean}) to {most:.2f} ({wide}) times as long"
    over = f"on a {load.oversubscription:g}:1 network" if load.oversubscription > 1 else "on this network"
    if advice.network == "instant":
        yield "The network is instant: where a job runs does not change how long it takes. Try --network steady."
    elif most - least <= MATTERS:
        yield f"{share} of the GPU-hours need several machines {over}, and policies hardly differ: {spread}."
    elif load.several_machines_gpu_hours < FEW:
        yield f"Only {share} of the GPU-hours need several machines; other jobs are split as well: {spread}."
    else:
        large = f"{share} of the GPU-hours are jobs of over {load.machine_gpus} GPUs {over}"
        yield f"{large}: contention decides; {spread}."


def _queue(advice: Advice) -> Iterator[str]:
    wait = _ends(advice, "mean_not_running_s")
    asks = f"The log asks for {percent(advice.workload.load)} of the GPUs"
    if wait[1][0] < WAIT_S:
        yield f"{asks}: hardly any job waits under any policy, so the order of the queue hardly matters."
        return
    spread = f"from {duration_text(wait[0][0])} ({wait[0][1]}) to {duration_text(wait[1][0])} ({wait[1][1]})"
    peak = percent(advice.workload.peak_load)
    yield f"{asks} on average and {peak} at its peak: jobs wait, to start or to go on, {spread} on average."


def _lengths(advice: Advice) -> Iterator[str]:
    load = advice.workload
    if _ends(advice, "mean_not_running_s")[1][0] >= WAIT_S and load.longest_gpu_hours > 0.5:
        yield (
            f"The longest {percent(LONGEST)} of the jobs hold {percent(load.longest_gpu_hours)} of the GPU-hours: "
            "much is gained where short jobs may pass long ones, or long ones are stopped for a while."
        )


def _machines(advice: Advice) -> Iterator[str]:
    hours = sorted((advice.values[policy]["machine_hours"], policy) for policy in advice.ranking)
    (least, lean), (most, wide) = hours[0], hours[-1]
    if most > least * (1.0 + SAME):
        yield f"{lean} needs the fewest machine-hours, {percent(1 - least / most)} less than {wide}."


def _kinds(advice: Advice) -> Iterator[str]:
    load = advice.workload
    if load.may_resize:
        what = [f"{percent(load.elastic_jobs)} of the jobs can be resized"] if load.elastic_jobs else []
        what += [f"the cluster has {load.gpu_types} types of GPU"] if load.gpu_types > 1 else []
        yield f"A policy that divides GPUs among jobs was tried as well, because {_and(what)}."


def costs(advice: Advice) -> list[str]:
    """Say what the best policy costs, and what this rests on."""
    return [*_restarts(advice), *_durations(advice), *_others(advice)]


def _restarts(advice: Advice) -> Iterator[str]:
    outcome = advice.outcomes[advice.best]
    restarts, moves = int(outcome.summary["restarts"]), int(outcome.summary["moves"])
    if not restarts + moves:
        yield f"{advice.best} stops and moves no job."
        return
    yield (
        f"{advice.best} stops jobs {counted(restarts, 'time')} and goes on elsewhere {counted(moves, 'time')} "
        f"among {counted(advice.workload.jobs, 'job')}; a restart costs {advice.restart_s:g} s here (--restart), "
        "and jobs must be able to go on from a checkpoint."
    )


def _durations(advice: Advice) -> Iterator[str]:
    knowing = [name for name in advice.ranking if _knows(advice.outcomes[name])]
    if knowing:
        has = "has" if len(knowing) == 1 else "have"
        limits = advice.workload.with_limit
        asked = (
            f" (the log has requested limits of {percent(limits)} of the jobs, which are not used)"
            if limits
            else ""
        )
        yield (
            f"{_and(knowing)} {has} the durations of the log to plan with. A live cluster has only what users "
            f"state or earlier jobs tell{asked}, so that a part of the lead may be lost there."
        )


def _knows(outcome: PolicyOutcome) -> bool:
    return outcome.order in KNOW_DURATIONS


def _others(advice: Advice) -> Iterator[str]:
    for policy, why in advice.failed.items():
        yield f"{policy} could not run: {why}"
    for policy in advice.ranking:
        summary = advice.outcomes[policy].summary
        left = int(summary["jobs_skipped"] + summary["jobs_unfinished"])
        if left:
            yield f"{policy} left {counted(left, 'job')} without running them to the end, so it is never first."


def _ends(advice: Advice, name: str) -> tuple[tuple[float, str], tuple[float, str]]:
    """Return the least and the greatest of a value, each with its policy."""
    found = sorted((each.summary[name], policy) for policy, each in advice.outcomes.items())
    return found[0], found[-1]


def _times(lead: PolicyRatio) -> str:
    """Write a ratio with its interval."""
    if lead.ratio >= 2:
        text, bounds = f"{lead.ratio:.1f} times as much", "{:.1f} to {:.1f}"
    elif abs(lead.ratio - 1.0) < SAME / 2:
        text, bounds = "the same", "{:.2f} to {:.2f}"
    else:
        text, bounds = (
            f"{percent(abs(lead.ratio - 1.0))} {'more' if lead.ratio > 1 else 'less'}",
            "{:.2f} to {:.2f}",
        )
    return text if lead.low is None else f"{text} ({bounds.format(lead.low, lead.high)})"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
