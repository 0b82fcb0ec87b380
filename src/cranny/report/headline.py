"""The headline: what a comparison shows, in one sentence, whichever policy is best."""

from collections.abc import Sequence
from typing import NamedTuple

from cranny.policies import DEFAULT_POLICY
from cranny.report.styles import labels, policy_of
from cranny.report.table import (
    Metric,
    column,
    format_value,
    in_rounds,
    number,
    share_links,
    skipping,
    with_unit,
)
from cranny.sim.result import Result

EQUAL = 0.005  # Differences under half a percent are called equal.
USED = column("mean_used_machines")
JCT = column("mean_jct_s")
SLOWDOWN = column("mean_comm_slowdown")
ITERATION = column("mean_iteration_s")


class RunFigures(NamedTuple):
    """What the sentence needs of one run."""

    name: str
    used: float
    jct_s: float | None


class Phrasing(NamedTuple):
    """How to say what policies use: "keeps 3 machines on", or "needs 3 machine-hours"."""

    measure: Metric
    one: str
    several: str
    noun: str
    end: str = ""


MACHINES = Phrasing(USED, "keeps", "keep", "machines", " on")
# These compare also where a policy holds nothing yet when a job arrives, and where runs end at other times.
MACHINE_HOURS = Phrasing(column("machine_hours"), "needs", "need", "machine-hours")


def finding(results: Sequence[Result]) -> str:
    """Say in one sentence what these runs show.

    Where jobs share links, that is which policy completes them soonest and slows them least; else it is about
    the machines of the default policy, or of the run with the fewest; machine-hours where a policy decides in
    rounds. Runs that skip jobs which others run do not count.
    """
    barred = skipping(results)
    names = [name for run, name in enumerate(labels(results)) if run not in barred]
    results = [result for run, result in enumerate(results) if run not in barred]
    if len(results) == 1:
        return _alone(results[0], names[0])
    if share_links(results):
        return _shared(results, names)
    words = MACHINE_HOURS if in_rounds(results) else MACHINES
    runs = [
        (RunFigures(name, used, number(result, JCT)), policy_of(result))
        for result, name in zip(results, names, strict=True)
        if (used := number(result, words.measure)) is not None
    ]
    if len(runs) < 2:
        return "There is nothing to compare: fewer than two runs placed a job."
    figures = [run for run, _ in runs]
    fewest = min(figures, key=lambda run: run.used)
    subject = next((run for run, policy in runs if policy == DEFAULT_POLICY), fewest)
    rivals = sorted((run for run in figures if run is not subject), key=lambda run: run.used)
    time = _time_clause(subject, rivals)
    return _sentence(f"{_machines_clause(subject, rivals, words)}{time}.")


def caution(results: Sequence[Result]) -> str:
    """Warn where averages cover different jobs, or where values at arrivals would mislead."""
    return " ".join(filter(None, [_rounds(results), _unlike(results), _skipping(results)]))


def _skipping(results: Sequence[Result]) -> str:
    """Say which runs cannot win because they skip jobs."""
    names = [name for run, name in enumerate(labels(results)) if run in skipping(results)]
    if not names:
        return ""
    verb, none = ("skips", "it is") if len(names) == 1 else ("skip", "they are")
    return _sentence(f"{_listed(names)} {verb} jobs that others run, so {none} never called best.")


def _rounds(results: Sequence[Result]) -> str:
    """Say why there are no values at arrivals."""
    names = in_rounds(results)
    if not names:
        return ""
    subject = _listed(names) if len(names) < len(results) or len(names) == 1 else "All policies"
    verb = "decides" if len(names) == 1 else "decide"
    instead = "instead of values at arrivals there are means over time, each to its own last end"
    return _sentence(f"{subject} {verb} in rounds, not when a job arrives: {instead}, so compare machine-hours.")


def _unlike(results: Sequence[Result]) -> str:
    """Warn where the runs finished different numbers of jobs."""
    done = [number(result, column("jobs_done")) or 0.0 for result in results]
    most = max(done)
    behind = [
        f"{name} {count:,.0f}" for name, count in zip(labels(results), done, strict=True) if count < most * 0.999
    ]
    if not behind:
        return ""
    fewer = f"{', '.join(behind)} of {most:,.0f}"
    return f"Read the averages with care: not every policy finished the same jobs ({fewer})."


def _machines_clause(subject: RunFigures, rivals: Sequence[RunFigures], words: Phrasing) -> str:
    """Compare what the subject uses with the nearest and the furthest rival."""
    near, far = rivals[0], rivals[-1]
    me, mine = subject.name, _machines(subject.used)
    one, what = words.one, f"{words.noun}{words.end}"
    if _same(subject.used, near.used) and _same(subject.used, far.used):
        others = "both policies" if len(rivals) == 1 else f"all {len(rivals) + 1} policies"
        return f"{others} {words.several} about {mine} {what}"
    if len(rivals) == 1:
        return f"{me} {one} {mine} {what} where {near.name} {one} {_machines(near.used)}: " + _gap(
            subject.used, near.used
        )
    against_far = f"{_gap(subject.used, far.used)} than {far.name} ({_machines(far.used)})"
    if _same(subject.used, near.used):
        return f"{me} and {near.name} {words.several} the fewest {what}, about {mine}, {against_far}"
    if subject.used < near.used:
        against_near = f"{_gap(subject.used, near.used)} than the next, {near.name} ({_machines(near.used)})"
        fewest = f"{me} {one} {mine} {what}, the fewest of {len(rivals) + 1} policies"
        return f"{fewest}: {against_near}, and {against_far}"
    text = (
        f"{near.name} {one} the fewest {what}, {_machines(near.used)}; {me} {one} {mine}, "
        f"{_gap(subject.used, near.used)}"
    )
    if far.used > subject.used and not _same(subject.used, far.used):
        return f"{text}, though {against_far}"
    return f"{text}, the most of {len(rivals) + 1} policies"


def _time_clause(subject: RunFigures, rivals: Sequence[RunFigures]) -> str:
    """Compare the subject's mean completion time with the shortest of the others."""
    timed = [(run.jct_s, run.name) for run in rivals if run.jct_s is not None]
    if subject.jct_s is None or not timed:
        return ""
    shortest_s, name = min(timed)
    same = _same(subject.jct_s, shortest_s)
    if not shortest_s:
        return ""  # nothing is so many percent longer than nothing
    share = _percent(abs(subject.jct_s - shortest_s) / shortest_s)
    direction = "longer" if subject.jct_s > shortest_s else "shorter"
    if len(rivals) == 1:
        return ", at the same mean completion time" if same else f", at {share} {direction} mean completion time"
    # Where the sentence so far is about one run only, "its" is clear.
    alone = subject.used < rivals[0].used and not _same(subject.used, rivals[0].used)
    owner = "its" if alone else f"{subject.name}'s"
    if same:
        ties = [run.name for run in rivals if run.jct_s is not None and _same(subject.jct_s, run.jct_s)]
        if len(ties) == len(rivals):
            return "; mean completion times are about the same"
        return f"; {_listed([subject.name, *ties])} have the shortest mean completion time, about the same"
    return f"; {owner} mean completion time is {share} {direction} than that of {name}, the shortest of the others"


def _shared(results: Sequence[Result], names: Sequence[str]) -> str:
    """Compare runs whose jobs share links: by how long jobs take, and how much links slow them."""
    clauses = []
    for measure, words in (
        (JCT, ("mean completion time", "shortest", "shorter")),
        (SLOWDOWN, ("slowdown", "least", "less")),
    ):
        values = [(number(result, measure), name) for result, name in zip(results, names, strict=True)]
        clauses.append(_ranked([(value, name) for value, name in values if value is not None], measure, words))
    text = "; ".join(filter(None, clauses))
    return _sentence(f"{text}.") if text else "There is nothing to compare: fewer than two runs ended a job."


def _ranked(found: Sequence[tuple[float, str]], measure: Metric, words: tuple[str, str, str]) -> str:
    """Say which runs have the least of something, and by how much the next and the last are behind."""
    if len(found) < 2:
        return ""
    what, least, less = words
    ranks = sorted(found, key=lambda each: each[0])
    top = ranks[0][0]
    first = [name for value, name in ranks if _same(value, top)]
    if len(first) == len(ranks):
        every = "both policies" if len(ranks) == 2 else f"all {len(ranks)} policies"
        return f"{every} have about the same {what}, {_written(measure, top)}"
    others = ranks[len(first) :]
    named = others[:1] if _same(others[0][0], others[-1][0]) else [others[0], others[-1]]
    gaps = [
        f"{_percent(1.0 - top / value)} {less} than {name} ({_written(measure, value)})" for value, name in named
    ]
    if len(first) > 1:
        return f"{_listed(first)} have the {least} {what}, about {_written(measure, top)}: {' and '.join(gaps)}"
    return f"{first[0]} has the {least} {what}, {_written(measure, top)}: {' and '.join(gaps)}"


def _written(column: Metric, value: float) -> str:
    """Write a value with its unit; a ratio without."""
    return format_value(column, value) if column.kind == "ratio" else with_unit(column, value)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _sentence(text: str) -> str:
    """Begin with a capital letter."""
    return text[0].upper() + text[1:]


def _alone(result: Result, name: str) -> str:
    over_time = "time_" if in_rounds([result]) else ""
    used, jct_s = number(result, column(f"{over_time}mean_used_machines")), number(result, JCT)
    if used is None:
        return _sentence(f"{name} placed no job.")
    slowdown = number(result, SLOWDOWN)
    if share_links([result]) and jct_s is not None and slowdown is not None:
        text = (
            f"{name} completes a job in {with_unit(JCT, jct_s)} on average; jobs run "
            f"{format_value(SLOWDOWN, slowdown)} times as long as on one machine"
        )
        iteration_s = number(result, ITERATION)
        if iteration_s is not None:
            text += f", and an iteration takes {with_unit(ITERATION, iteration_s)} on average"
        return _sentence(f"{text}.")
    parts = [f"{name} keeps {_machines(used)} of {len(result.cluster.machines):,} machines on"]
    fragmentation = number(result, column(f"{over_time}mean_fragmentation"))
    if fragmentation is not None:
        parts.append(f"leaves {_percent(fragmentation)} of their GPUs idle")
    if jct_s is not None:
        parts.append(f"completes a job in {with_unit(JCT, jct_s)} on average")
    return _sentence(f"{_listed(parts)}.")


def _gap(mine: float, theirs: float) -> str:
    """Say how many percent fewer or more; nothing is so many percent more than nothing."""
    if _same(mine, theirs):
        return "as many"
    if not theirs:
        return f"{_machines(mine)} more"
    return f"{_percent(abs(mine - theirs) / theirs)} {'fewer' if mine < theirs else 'more'}"


def _percent(share: float) -> str:
    """Write a share of one as a percentage, with a decimal where it is small."""
    percent = share * 100
    text = f"{percent:,.0f}" if percent >= 9.95 else f"{percent:.1f}".removesuffix(".0")
    return f"{text}\N{NO-BREAK SPACE}%"


def _machines(used: float) -> str:
    """Write a number of machines, or of machine-hours."""
    text = format_value(USED, used)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _same(one: float, other: float) -> bool:
    """Say whether two values differ too little to be worth a word."""
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))
