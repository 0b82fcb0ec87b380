"""The tables: the paper's values beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.cassini.links import Adjusting, Outcome, Unifying
from cranny.repro.cassini.precision import Precision
from cranny.repro.cassini.shapes import GIVEN, SETUPS
from cranny.repro.cassini.study import BEYOND, GAP, PAIRS, SCHEMES, Study, Workload
from cranny.repro.cassini.values import (
    FIG2_P90_GAIN,
    FIG2_SHIFT_MS,
    FIG5_PERIMETER_MS,
    FIG17_MOST_A_MINUTE,
    GAINS,
    MARKS,
    PAPER_NAMES,
    TABLE2,
    Gain,
)
from cranny.repro.wording import plain, spread, times

MS = 1e3
NOTHING = 1e-6  # Gbit in an iteration: what is left of rounding


@dataclass(frozen=True, slots=True)
class Faster:
    """By what factor CASSINI makes the iterations of a host's jobs faster on a trace, and what the paper says."""

    workload: Workload
    host: str
    paper: Gain | None
    mean: Estimate
    p99: Estimate
    before: Estimate  # iteration times over those alone, with the host
    after: Estimate  # and with CASSINI
    relief: Estimate  # the first over the second, seed by seed


def faster(study: Study) -> list[Faster]:
    """Return the gains on every trace over every host."""
    said = {(gain.trace, gain.host): gain for gain in GAINS}
    return [
        Faster(
            work,
            host,
            said.get((work.key, host)),
            study.gain(work, host, after, "mean_s"),
            study.gain(work, host, after, "p99_s"),
            study.value(work, host, "over_alone"),
            study.value(work, after, "over_alone"),
            study.gain(work, host, after, "over_alone"),
        )
        for work in study.workloads
        for host, after in PAIRS.items()
        if study.of(work, host) and study.of(work, after)
    ]


def heading(workload: Workload) -> str:
    """Return the title of a trace, with the paper's figure if it has one."""
    return f"{_figure(workload)}: {workload.title}"


def _figure(workload: Workload) -> str:
    return f"Fig. {workload.figure}" if workload.figure.isdigit() else workload.figure


def _short(workload: Workload) -> str:
    """Return the figure of a trace, and which reading of the topology, or which step, it is."""
    if workload.figure == GAP:
        return heading(workload)
    return f"{_figure(workload)}, fours" if workload.fours else _figure(workload)


def pair_sheet(found: Sequence[Outcome]) -> TextTable:
    """Show Fig. 2 in every set-up."""
    rows = [["the paper", "", "", "", plain(FIG2_SHIFT_MS), "", times(FIG2_P90_GAIN)]]
    for one in found:
        circle = one.circles[0]
        rows.append(
            [
                SETUPS[one.setup],
                plain(circle.iteration_s * MS),
                plain(circle.up_s * MS),
                f"{one.fit.score:.2f}",
                plain(max(one.fit.shifts_s) * MS),
                times(one.gain()),
                times(one.p90_gain()),
            ]
        )
    return TextTable(
        "Fig. 2: two VGG19 jobs on one link",
        "By what factor iterations are faster with the shift than when both jobs start together: on average, and "
        "at the 90th percentile.",
        ("", "iteration, ms", "up, ms", "score", "shift, ms", "mean", "p90"),
        rows,
    )


def fig5_sheet(found: Unifying) -> TextTable:
    """Show Fig. 5."""
    rows = [
        ["the paper", plain(FIG5_PERIMETER_MS), MISSING, "1.00", MISSING],
        ["ours", plain(found.perimeter_ms), f"{found.before:.2f}", f"{found.at_papers:.2f}", f"{found.best:.2f}"],
    ]
    return TextTable(
        "Fig. 5: iterations of 40 and 60 ms on one circle",
        "Either job sends for 10 ms at the full rate, which is our choice.",
        ("", "perimeter, ms", "score unturned", "score at 30 degrees", "best score"),
        rows,
    )


def score_sheet(found: Mapping[int, Sequence[Outcome]]) -> TextTable:
    """Show scores and gains of Table 2 in every set-up."""
    rows = []
    for snapshot in TABLE2:
        jobs = ", ".join(f"{row.model} ({row.batch})" for row in snapshot.rows)
        ours = [_scored(one.fit.score, one.talking_gain().mean) for one in found[snapshot.number]]
        rows.append([f"{snapshot.number}: {jobs}", _scored(snapshot.score, snapshot.gain), *ours])
    return TextTable(
        "Table 2: scores and gains",
        "Score, and gain: time beyond computing of all jobs together, without shifts over with them. Shapes from "
        "the paper have its scores by choice; their gains are not chosen.",
        ("", "the paper", *SETUPS.values()),
        rows,
    )


def _scored(score: float, gain: float) -> str:
    return f"{score:.2f} {times(gain)}"


def talking_sheet(found: Mapping[int, Sequence[Outcome]]) -> TextTable:
    """Show the communication times of Table 2, job by job, for shapes from the paper."""
    rows = []
    for snapshot in TABLE2:
        one = next(each for each in found[snapshot.number] if each.setup == GIVEN)
        shifts_ms = [shift_s * MS for shift_s in one.fit.shifts_s]
        for row, with_ms, without_ms, shift_ms in zip(snapshot.rows, *one.talking_ms(), shifts_ms, strict=True):
            rows.append(
                [
                    f"{snapshot.number}: {row.model}",
                    plain(row.cassini_ms),
                    plain(with_ms),
                    plain(row.themis_ms),
                    plain(without_ms),
                    plain(row.shift_ms),
                    plain((shift_ms - shifts_ms[0]) % (one.circles[0].iteration_s * MS)),
                ]
            )
    return TextTable(
        "Table 2: ms of communication in an iteration, shapes from the paper",
        "Ours: what an iteration takes beyond computing, with waiting for the beat; without shifts from random "
        "starts. Shifts are against the first job; many others fit as well.",
        ("", "CASSINI: paper", "ours", "Themis: paper", "ours", "shift: paper", "ours"),
        rows,
    )


def adjusting_sheet(found: Sequence[Adjusting]) -> TextTable:
    """Show Fig. 17."""
    rows = [
        [
            f"snapshot {each.snapshot}, {'held to the beat' if each.hold else 'the 5 % rule alone'}",
            f"{100 * each.jitter:g} %",
            spread(each.a_minute),
            times(each.slowdown.mean),
        ]
        for each in found
    ]
    return TextTable(
        "Fig. 17: adjustments of a job a minute",
        f"The paper: fewer than {FIG17_MOST_A_MINUTE:g} in all cases. Iteration: its mean time over that alone.",
        ("", "jitter", "a minute", "iteration"),
        rows,
    )


def precision_sheet(found: Sequence[Precision]) -> TextTable:
    """Show Fig. 18."""
    rows = [
        [f"{each.degrees:g}", spread(each.time_ms), spread(each.lost), f"{100 * each.right:.0f} %"]
        for each in found
    ]
    return TextTable(
        "Fig. 18: precision against time",
        "Of a link with two to four jobs. Right: the score is within 0.01 of the best that any precision found. "
        "The paper: 5 degrees reach 100 %.",
        ("degrees", "CPU time, ms", "score lost", "right shifts"),
        rows,
    )


def gain_sheet(made: Sequence[Faster]) -> TextTable:
    """Show by what factor iterations are faster with CASSINI, on all traces."""
    rows = [
        [
            f"{_short(each.workload)}: {each.host}",
            _both(each.paper),
            times(each.mean),
            times(each.p99),
            cost(each.before.mean),
            cost(each.after.mean),
        ]
        for each in made
    ]
    return TextTable(
        "Iteration times of a host over those with CASSINI",
        "Mean and 99th percentile over all iterations of all jobs, seed by seed. Sharing: by how much iterations "
        "are longer than those of the same job on the same servers with nobody else there. Fours: one uplink for "
        "four servers, not for two.",
        ("", "paper: mean, p99", "ours: mean", "p99", "sharing", "with CASSINI"),
        rows,
    )


def _both(paper: Gain | None) -> str:
    """Write the two gains of the paper."""
    if paper is None or paper.mean is None or paper.p99 is None:
        return MISSING
    return f"{times(paper.mean)}, {times(paper.p99)}"


def cost(over_alone: float) -> str:
    """Write what sharing costs."""
    return f"{100 * max(over_alone - 1.0, 0.0):.1f} %"


def trace_sheet(study: Study, workload: Workload) -> TextTable:
    """Show what every scheme came to on a trace."""
    rows = [
        [
            scheme,
            spread(_scaled(study.value(workload, scheme, "mean_s"))),
            spread(_scaled(study.value(workload, scheme, "p99_s"))),
            cost(study.value(workload, scheme, "over_alone").mean),
            cost(study.value(workload, scheme, "p99_over_alone").mean),
            plain(study.marks(workload, scheme)[""]),
            plain(study.value(workload, scheme, "mean_jct_s").mean),
        ]
        for scheme in study.schemes(workload)
    ]
    return TextTable(
        heading(workload),
        "Sharing: by how much iterations are longer than those of the same job on the same servers with nobody "
        "else there, mean and 99th percentile. Marked: Gbit offered above capacity in an iteration.",
        ("", "mean, ms", "p99, ms", "sharing", "p99", "marked", "JCT, s"),
        rows,
    )


def _scaled(found: Estimate) -> Estimate:
    return Estimate(found.mean * MS, None if found.half is None else found.half * MS)


@dataclass(frozen=True, slots=True)
class Fewer:
    """How many times less is offered above capacity with CASSINI, by what the paper says of a model."""

    workload: Workload
    host: str
    model: str
    paper: float
    before: float
    after: float

    @property
    def gone(self) -> bool:
        """Say whether there was something, and nothing is left."""
        return self.after <= NOTHING < self.before

    @property
    def times(self) -> float | None:
        """Return the factor; None if nothing is left, or nothing was there."""
        return self.before / self.after if min(self.after, self.before) > NOTHING else None


def fewer(study: Study) -> list[Fewer]:
    """Compare with what the paper says of ECN marks."""
    made = []
    for marks in MARKS:
        for work in study.workloads:
            if work.key == marks.trace and study.of(work, marks.host):
                before = study.marks(work, marks.host)
                after = study.marks(work, PAIRS[marks.host])
                model = marks.model or max((name for name in before if name), key=lambda name: before[name])
                found = before.get(model, 0.0), after.get(model, 0.0)
                made.append(Fewer(work, marks.host, model, marks.fewer, *found))
    return made


def mark_sheet(made: Sequence[Fewer]) -> TextTable:
    """Show the proxy for ECN marks."""
    rows = [
        [
            f"{_short(each.workload)}, {each.host}: {each.model}",
            times(each.paper),
            "nothing left" if each.gone else times(each.times),
            plain(each.before),
            plain(each.after),
        ]
        for each in made
    ]
    return TextTable(
        "Marked packets without CASSINI over with it",
        "Ours: gigabits offered above capacity in an iteration of the model, over all seeds; a proxy.",
        ("", "paper", "ours", "without", "with"),
        rows,
    )


def records(study: Study) -> list[dict[str, Any]]:
    """Return a row for each trace and scheme, for files."""
    rows = []
    for work in study.workloads:
        for scheme in study.schemes(work):
            mean, p99, jct = (study.value(work, scheme, name) for name in ("mean_s", "p99_s", "mean_jct_s"))
            rows.append(
                {
                    "figure": work.figure,
                    "trace": work.key,
                    "title": work.title,
                    "switches_of_four": work.fours,
                    "policy": scheme,
                    "name_in_paper": PAPER_NAMES.get(scheme),
                    "mean_iteration_s": mean.mean,
                    "mean_half_width_95": mean.half,
                    "p99_iteration_s": p99.mean,
                    "p99_half_width_95": p99.half,
                    "mean_over_alone": study.value(work, scheme, "over_alone").mean,
                    "p99_over_alone": study.value(work, scheme, "p99_over_alone").mean,
                    "above_gbit_per_iteration": study.marks(work, scheme)[""],
                    "mean_jct_s": jct.mean,
                    "jct_half_width_95": jct.half,
                    "in_paper": scheme in SCHEMES and scheme not in BEYOND,
                }
            )
    return rows
