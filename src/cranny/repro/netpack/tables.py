"""Tables of NetPack's experiments: the values of every policy at every point, beside NetPack's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from cranny.model.validate import percent
from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.netpack.paper import NETPACK, PAPER_NAMES, TEXT
from cranny.repro.netpack.rates import JobRates
from cranny.repro.netpack.replays import NetpackResults
from cranny.repro.netpack.setups import NetpackExperiment
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Record

Standing = Literal["ahead", "level", "behind"]
LOWER = "lower by"


@dataclass(frozen=True, slots=True)
class PolicyPoint:
    """One policy at one point of a panel."""

    panel: str
    point: str
    scheme: str
    value: Estimate  # JCT in hours, or DE
    advantage: Estimate  # by what factor NetPack is better
    reduction: float  # by what share NetPack's JCT is lower
    machines: float  # of a job that is on several

    @property
    def standing(self) -> Standing:
        """Say where NetPack stands; it is level if the confidence interval of the factor contains 1."""
        low, high = (self.advantage.mean + sign * (self.advantage.half or 0.0) for sign in (-1, 1))
        return "ahead" if low > 1.0 else "behind" if high < 1.0 else "level"

    @property
    def where(self) -> str:
        """Name the comparison."""
        return f"{PAPER_NAMES.get(self.scheme, self.scheme)}, {self.panel}, {self.point}"


@dataclass(frozen=True, slots=True)
class PanelTable:
    """One panel of an experiment."""

    experiment: NetpackExperiment
    panel: str
    points: tuple[str, ...]
    entries: tuple[PolicyPoint, ...]

    def at(self, point: str) -> dict[str, PolicyPoint]:
        """Return the policies at a point."""
        return {entry.scheme: entry for entry in self.entries if entry.point == point}

    @property
    def rivals(self) -> list[PolicyPoint]:
        """Return the comparisons with the baselines of the paper."""
        return [entry for entry in self.entries if entry.scheme in self.experiment.rivals]

    def mean_reduction(self, point: str) -> float:
        """Return by how much NetPack's JCT is lower than that of the baselines, on average."""
        return fmean(entry.reduction for entry in self.rivals if entry.point == point)

    def records(self) -> list[Record]:
        """Return a row for each point and policy, for files."""
        return [
            {
                "figure": self.experiment.key,
                "measure": "mean_jct_h" if self.experiment.measure == "jct" else "distribution_efficiency",
                "panel": self.panel,
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


def panel_tables(experiments: Iterable[NetpackExperiment], replays: NetpackResults) -> list[PanelTable]:
    """Return a table for each panel of each experiment."""
    made = []
    for experiment in experiments:
        for title, panel in experiment.panels.items():
            entries = tuple(
                PolicyPoint(
                    title,
                    label,
                    scheme,
                    replays.value(setup, scheme, experiment.measure),
                    replays.advantage(setup, scheme, experiment.measure),
                    replays.reduction(setup, scheme),
                    fmean(replays.values(setup, scheme, "machines")),
                )
                for label, setup in panel.items()
                for scheme in experiment.schemes
            )
            made.append(PanelTable(experiment, title, tuple(panel), entries))
    return made


def panel_sheet(table: PanelTable) -> TextTable:
    """Show a panel: NetPack's own values, and by what factor it is better than each of the others."""
    jct = table.experiment.measure == "jct"
    found = [table.at(point) for point in table.points]
    others = [scheme for scheme in table.experiment.schemes if scheme != NETPACK]
    rows = [[f"netpack, {'hours' if jct else 'DE'}", *(spread(each[NETPACK].value) for each in found)]]
    rows += [[TEXT.label(scheme), *(_factor(each[scheme]) for each in found)] for scheme in others]
    what = "A policy's mean JCT over NetPack's" if jct else "NetPack's DE over that of a policy"
    note = f"{what}, seed by seed; = level with NetPack, < NetPack is behind."
    if jct and table.rivals:
        rows.append([LOWER, *(percent(table.mean_reduction(point)) for point in table.points)])
        names = ", ".join(PAPER_NAMES[scheme] for scheme in table.experiment.rivals)
        note += f" {LOWER}: by how much NetPack's JCT is lower, mean of {names}."
    title = f"{table.experiment.heading}: {table.panel}"
    return TextTable(title, note, (table.experiment.axis, *table.points), rows)


def _factor(entry: PolicyPoint) -> str:
    """Write by what factor NetPack is better, and a mark if it is not."""
    return times(entry.advantage) + {"ahead": "", "level": " =", "behind": " <"}[entry.standing]


def speed_sheet(seconds: Mapping[int, float]) -> TextTable:
    """Show how long NetPack takes to place a job."""
    rows = []
    for servers, ours in seconds.items():
        paper = TEXT.claims["10"].numbers.get(str(servers))
        stated, faster = (f"{paper:.3g}", f"{paper / ours:.3g}x") if paper else (MISSING, MISSING)
        rows.append([f"{servers:,}", stated, f"{ours:.3g}", faster])
    return TEXT.table("speed", rows)


def rate_sheet(rates: Iterable[JobRates]) -> TextTable:
    """Show rates as jobs come and go."""
    rows = [
        [
            f"{each.job}, {each.from_s:.0f} to {each.to_s:.0f} s",
            *map(plain, (each.rate_gbps, each.estimate_gbps, each.steady_gbps, each.phases_gbps)),
        ]
        for each in rates
    ]
    return TEXT.table("rates", rows)
