"""Results of NetPack's experiments: every policy beside NetPack, in tables."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Literal, NamedTuple

from cranny.model.validate import percent
from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.netpack.paper import BY_MACHINE, NETPACK, TEXT
from cranny.repro.netpack.rates import JobRates
from cranny.repro.netpack.replays import NetpackResults
from cranny.repro.netpack.setups import NetpackExperiment
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Record

Standing = Literal["ahead", "level", "behind"]
MARKS: Mapping[Standing, str] = {"ahead": "", "level": " =", "behind": " <"}  # of factors


class PolicyPoint(NamedTuple):
    """One policy at one point of a panel."""

    panel: str
    point: str
    scheme: str
    value: Estimate  # JCT in hours, or DE
    advantage: Estimate  # by what factor NetPack is better
    reduction: Estimate  # by what share NetPack's JCT is lower
    machines: float  # of a job that is on several

    @property
    def standing(self) -> Standing:
        """Say where NetPack stands; it is level if the confidence interval of the factor contains 1."""
        low, high = (self.advantage.mean + sign * (self.advantage.half or 0.0) for sign in (-1, 1))
        return "ahead" if low > 1.0 else "behind" if high < 1.0 else "level"

    @property
    def where(self) -> str:
        """Name the comparison."""
        return f"{TEXT.names.get(self.scheme, self.scheme)}, {self.panel}, {self.point}"


class PanelTable(NamedTuple):
    """One panel of an experiment."""

    experiment: NetpackExperiment
    panel: str
    points: tuple[str, ...]
    entries: tuple[PolicyPoint, ...]
    lower: Mapping[tuple[str, str], Estimate]  # by what share NetPack's JCT is, by reading and point

    def at(self, point: str) -> dict[str, PolicyPoint]:
        """Return the policies at a point."""
        return {entry.scheme: entry for entry in self.entries if entry.point == point}

    def rivals(self, reading: str = BY_MACHINE) -> list[PolicyPoint]:
        """Return the comparisons with the baselines of the paper, in one reading."""
        return [entry for entry in self.entries if entry.scheme in self.experiment.rivals(reading)]

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
                "name_in_paper": TEXT.names.get(entry.scheme),
                "value": entry.value.mean,
                "value_half_width_95": entry.value.half,
                "netpack_better_by": entry.advantage.mean,
                "better_half_width_95": entry.advantage.half,
                "netpack_jct_lower_by": entry.reduction.mean,
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
            lower = {
                (reading, label): replays.reduction(setup, *experiment.rivals(reading))
                for label, setup in panel.items()
                for reading in experiment.readings
                if experiment.rivals(reading)
            }
            made.append(PanelTable(experiment, title, tuple(panel), entries, lower))
    return made


def panel_sheet(table: PanelTable) -> TextTable:
    """Show a panel: NetPack's own values, and by what factor it is better than each of the others."""
    jct = table.experiment.measure == "jct"
    found = [table.at(point) for point in table.points]
    others = [scheme for scheme in table.experiment.schemes if scheme != NETPACK]
    rows = [[f"netpack, {'hours' if jct else 'DE'}", *(spread(each[NETPACK].value) for each in found)]]
    rows += [
        [TEXT.label(scheme), *(times(each[scheme].advantage) + MARKS[each[scheme].standing] for each in found)]
        for scheme in others
    ]
    what = "A policy's mean JCT over NetPack's" if jct else "NetPack's DE over that of a policy"
    note = f"{what}, seed by seed; = level with NetPack, < NetPack is behind."
    for reading in table.experiment.readings if jct and table.lower else ():
        row = [percent(table.lower[reading, point].mean) for point in table.points]
        names = ", ".join(TEXT.names[scheme] for scheme in table.experiment.rivals(reading))
        rows.append([f"lower by, {reading}", *row])
        note += f" Lower by, {reading}: by how much NetPack's JCT is lower, mean of {names}."
    title = f"{table.experiment.heading}: {table.panel}"
    return TextTable(title, note, (table.experiment.axis, *table.points), rows)


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
