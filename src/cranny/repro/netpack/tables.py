"""The tables: what every policy came to at every point of an experiment, beside NetPack."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from cranny.model.validate import percent
from cranny.report.confidence import Estimate, estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.netpack.study import Experiment, Panel, Study
from cranny.repro.netpack.values import COMB, NETPACK, PAPER_NAMES, RIVALS
from cranny.repro.netpack.watch import Watched
from cranny.repro.wording import plain, spread, times

Standing = Literal["ahead", "level", "behind"]
LOWER = "lower by"


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy at one point."""

    point: str
    scheme: str
    value: Estimate  # JCT in hours, or DE
    advantage: Estimate  # by what factor NetPack is better
    reduction: float  # by what share NetPack's JCT is lower
    machines: float  # of a job that is on several

    @property
    def standing(self) -> Standing:
        """Say where NetPack stands; it is level if the confidence interval has room for that."""
        low, high = (self.advantage.mean + sign * (self.advantage.half or 0.0) for sign in (-1, 1))
        return "ahead" if low > 1.0 else "behind" if high < 1.0 else "level"


@dataclass(frozen=True, slots=True)
class Table:
    """One panel of an experiment."""

    experiment: Experiment
    panel: Panel
    entries: tuple[Entry, ...]

    def at(self, point: str) -> dict[str, Entry]:
        """Return the policies at a point."""
        return {entry.scheme: entry for entry in self.entries if entry.point == point}

    @property
    def points(self) -> list[str]:
        """Return the labels of the points."""
        return [point.label for point in self.panel.points]

    def mean_reduction(self, point: str, schemes: Sequence[str] = RIVALS) -> float:
        """Return by how much NetPack's JCT is lower than that of some policies, on average."""
        found = self.at(point)
        return fmean(found[scheme].reduction for scheme in schemes if scheme in found)

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each point and policy, for files."""
        return [
            {
                "figure": self.experiment.key,
                "measure": "mean_jct_h" if self.experiment.measure == "jct" else "distribution_efficiency",
                "panel": self.panel.title,
                "axis": self.experiment.axis,
                "point": entry.point,
                "policy": entry.scheme,
                "name_in_paper": PAPER_NAMES.get(entry.scheme),
                "value": entry.value.mean,
                "value_half_width_95": entry.value.half,
                "netpack_better_by": entry.advantage.mean,
                "better_half_width_95": entry.advantage.half,
                "netpack_jct_lower_by": entry.reduction,
                "machines_of_a_job_on_several": entry.machines,
                "netpack_is": None if entry.scheme == NETPACK else entry.standing,
            }
            for entry in self.entries
        ]


def tables(study: Study) -> list[Table]:
    """Return a table for each panel of each experiment."""
    made = []
    for experiment in study.experiments:
        for panel in experiment.panels:
            entries = [
                Entry(
                    point.label,
                    scheme,
                    estimate(study.values(point.setup, scheme, experiment.measure)),
                    study.advantage(point.setup, scheme, experiment.measure),
                    study.reduction(point.setup, scheme).mean,
                    fmean(one.machines for one in study.runs(point.setup, scheme)),
                )
                for point in panel.points
                for scheme in experiment.schemes
            ]
            made.append(Table(experiment, panel, tuple(entries)))
    return made


def name(scheme: str) -> str:
    """Name a policy, and say what the paper calls it."""
    paper = PAPER_NAMES.get(scheme)
    return f"{scheme} ({paper})" if paper and paper.lower() != scheme else scheme


def heading(experiment: Experiment) -> str:
    """Return the title of an experiment: a figure, or a question of ours."""
    return f"Fig. {experiment.key}: {experiment.title}" if experiment.key.isdigit() else experiment.title


def sheet(table: Table) -> TextTable:
    """Show a panel: NetPack's own values, and by what factor it is better than each of the others."""
    jct = table.experiment.measure == "jct"
    found = {point: table.at(point) for point in table.points}
    others = [scheme for scheme in table.experiment.schemes if scheme != NETPACK]
    own = "netpack, hours" if jct else "netpack, DE"
    rows = [[own, *(spread(found[point][NETPACK].value) for point in table.points)]]
    rows += [[name(scheme), *(_cell(found[point][scheme]) for point in table.points)] for scheme in others]
    if jct and any(scheme in others for scheme in (*RIVALS, COMB)):
        schemes = RIVALS if RIVALS[0] in others else (COMB,)
        rows.append([LOWER, *(percent(table.mean_reduction(point, schemes)) for point in table.points)])
    what = "A policy's mean JCT over NetPack's" if jct else "NetPack's DE over that of a policy"
    note = f"{what}, seed by seed; = level with NetPack, < NetPack is behind."
    if rows[-1][0] == LOWER:
        note += f" {LOWER}: by how much NetPack's JCT is lower, mean of {', '.join(map(_paper_name, schemes))}."
    title = f"{heading(table.experiment)}: {table.panel.title}"
    return TextTable(title, note, (table.experiment.axis, *table.points), rows)


def _paper_name(scheme: str) -> str:
    return PAPER_NAMES[scheme]


def _cell(entry: Entry) -> str:
    """Write by what factor NetPack is better, and a mark if it is not."""
    marks = {"ahead": "", "level": " =", "behind": " <"}
    return times(entry.advantage) + marks[entry.standing]


def speed_sheet(seconds: Mapping[int, float], paper: Mapping[str, float]) -> TextTable:
    """Show how long NetPack takes to place a job."""
    rows = []
    for servers, ours in seconds.items():
        theirs = paper.get(str(servers))
        told = [f"{theirs:.3g}", f"{theirs / ours:.3g}x"] if theirs else [MISSING, MISSING]
        rows.append([f"{servers:,}", told[0], f"{ours:.3g}", told[1]])
    return TextTable(
        "Fig. 10: CPU seconds to place a job",
        "4,000 jobs, 16 racks of servers with 4 GPUs, batches of 32; the policy alone.",
        ("servers", "paper", "ours", "faster by"),
        rows,
    )


def watch_sheet(watched: Iterable[Watched]) -> TextTable:
    """Show rates as jobs come and go."""
    rows = [
        [
            f"{each.job}, {each.from_s:.0f} to {each.to_s:.0f} s",
            plain(each.rate_gbps),
            plain(each.estimate_gbps),
            plain(each.steady_gbps),
            plain(each.phases_gbps),
        ]
        for each in watched
    ]
    return TextTable(
        "Fig. 15: rates as jobs come and go, Gbps",
        "The estimate while a job communicates, and on average over an iteration; then the averages of the "
        "simulator's networks.",
        ("", "estimate", "average", "steady", "phases"),
        rows,
    )
