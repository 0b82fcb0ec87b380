"""NetPack's evaluation put together: facts, claims, tables and plots of what was run."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby

from cranny.repro.netpack.netpack_claims import claims, left_open
from cranny.repro.netpack.paper import NETPACK, TEXT
from cranny.repro.netpack.rates import JobRates
from cranny.repro.netpack.replays import NetpackResults
from cranny.repro.netpack.results import PanelTable, panel_sheet, panel_tables, rate_sheet, speed_sheet
from cranny.repro.netpack.setups import OWN_SEEDS, NetpackExperiment
from cranny.repro.page import Reproduction, Section
from cranny.repro.plots import Figure, Line, draw_bars, draw_lines

STEEP = 6.0  # factors from which an axis is logarithmic


def reproduction(
    experiments: Sequence[NetpackExperiment],
    replays: NetpackResults | None,
    seconds: Mapping[int, float],
    rates: Sequence[JobRates],
    quick: str = "",
) -> Reproduction:
    """Make tables, claims and plots of the replays, of placement times by servers, and of rates.

    `quick` says how many jobs and seeds were run, if too few for verdicts.
    """
    made = panel_tables(experiments, replays) if replays is not None else []
    sections: list[Section] = []
    for key, group in groupby(made, lambda table: table.experiment.key):
        mine = list(group)
        stem = f"fig{key}" if key.isdigit() else key
        rows = [row for table in mine for row in table.records()]
        heading, sheets = mine[0].experiment.heading, [panel_sheet(table) for table in mine]
        sections.append(Section(heading, sheets, {stem: partial(_bars, mine)}, {stem: rows}))
    if seconds:
        sections.append(Section("Fig. 10: time to place a job", [speed_sheet(seconds)]))
    all_rates = [each._asdict() for each in rates]
    if rates:
        plots = {"fig15": partial(_rates, rates)}
        sections.append(Section("Fig. 15: estimate and rates", [rate_sheet(rates)], plots, {"fig15": all_rates}))
    values = {
        "figures": [row for table in made for row in table.records()],
        "seconds_per_job": {str(servers): value for servers, value in seconds.items()},
        "rates": all_rates,
    }
    facts = []
    if replays is not None:
        trace = " ".join(TEXT.say("generated" if replays.generated else "real", "squeezed"))
        facts = [*TEXT.say("setups", "loads"), trace]
        facts += TEXT.say("baselines", "queue", "efficiency")
        facts += TEXT.say("seeds", seeds=replays.seeds, fewer=min(replays.seeds, OWN_SEEDS))
    facts += TEXT.say(*["speed"] * bool(seconds), *["rates"] * bool(rates))
    judged = claims(made, seconds, rates)
    return Reproduction(TEXT, facts, judged, sections, values, left_open=left_open(made), quick=quick)


def _bars(mine: Sequence[PanelTable]) -> Figure:
    """Draw JCT over NetPack's, or DE as it is."""
    experiment = mine[0].experiment
    jct = experiment.measure == "jct"
    panels = {
        table.panel: {
            point: {scheme: entry.advantage if jct else entry.value for scheme, entry in table.at(point).items()}
            for point in table.points
        }
        for table in mine
    }
    steep = any(entry.advantage.mean > STEEP for table in mine for entry in table.entries)
    ylabel = f"mean JCT, {NETPACK} = 1" if jct else "distribution efficiency"
    names = {scheme: TEXT.label(scheme) for scheme in experiment.schemes}
    return draw_bars(panels, ylabel, names, xlabel=experiment.axis, wide=True, log=jct and steep)


def _rates(rates: Sequence[JobRates]) -> Figure:
    """Draw the mean rates of each job over time."""
    names = {"estimate": "NetPack's estimate", "steady": "network steady", "phases": "network phases"}
    panels: dict[str, list[Line]] = {}
    for job in dict.fromkeys(each.job for each in rates):
        mine = [each for each in rates if each.job == job]
        times_s = [at_s for each in mine for at_s in (each.from_s, each.to_s)]
        panels[job] = [
            Line(kind, times_s, [value for each in mine for value in (getattr(each, f"{kind}_gbps"),) * 2])
            for kind in names
        ]
    return draw_lines(panels, "mean rate over an iteration, Gbps", names, xlabel="seconds", unit_s=1.0)
