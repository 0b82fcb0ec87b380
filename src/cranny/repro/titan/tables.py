"""Tables of Titan's figures: the paper's value, ours, their ratios to Titan, and a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.claim import Verdict, judge
from cranny.repro.experiment import Results, scaled
from cranny.repro.number_format import plain, sentence, spread, times
from cranny.repro.page import Record
from cranny.repro.titan.paper import (
    FIGURES,
    PAPER_NAMES,
    PAPER_POLICIES,
    POLICIES,
    TESTBED,
    TEXT,
    TRACES,
    PlacementFigure,
    TitanTrace,
    TraceFigure,
)
from cranny.repro.titan.replays import Setup, TraceRun
from cranny.repro.titan.testbed import MODELS, SCHEMES, WORKERS, PlacementRun, estimates


@dataclass(frozen=True, slots=True)
class TraceTable:
    """One figure on one trace with one network: the values of every policy, and the verdict on the paper's."""

    figure: TraceFigure
    trace: TitanTrace
    network: str
    paper: Mapping[str, float]  # its values, if it gives any for this trace
    ours: Mapping[str, Estimate]  # in the figure's unit
    ratios: Mapping[str, Estimate]  # to Titan
    verdict: Verdict

    @property
    def first(self) -> bool:
        """Say whether this is the network that the figure is compared with first."""
        return self.network == self.figure.network

    def records(self) -> list[Record]:
        """Return a row a policy, for files."""
        return [
            {
                "figure": self.figure.number,
                "measure": self.figure.title,
                "unit": self.figure.unit,
                "trace": self.trace.key,
                "network": self.network,
                "policy": policy,
                "name_in_paper": PAPER_NAMES.get(policy),
                "paper": None if self.figure.ratios_only else self.paper.get(policy),
                "paper_ratio_to_titan": _over_titan(self.paper, policy),
                "ours": found.mean,
                "ours_half_width_95": found.half,
                "ratio_to_titan": self.ratios[policy].mean if policy in self.ratios else None,
                "ratio_half_width_95": self.ratios[policy].half if policy in self.ratios else None,
                "ratio_verdict": _nearness(self.verdict, policy),
                "figure_verdict": self.verdict.word,
            }
            for policy, found in self.ours.items()
        ]


@dataclass(frozen=True, slots=True)
class PlacementTable:
    """One figure of the testbed: the setting that the text gives numbers for, and all the others."""

    figure: PlacementFigure
    ours: Mapping[str, Estimate]
    verdict: Verdict
    all: Mapping[tuple[str, int], Mapping[str, Estimate]]  # by model and workers

    def records(self) -> list[Record]:
        """Return a row for each setting and scheme, for files."""
        return [
            {
                "figure": self.figure.number,
                "measure": self.figure.title,
                "unit": self.figure.unit,
                "model": setting[0],
                "workers": setting[1],
                "policy": scheme,
                "name_in_paper": PAPER_NAMES.get(scheme),
                "paper": self.figure.values.get(scheme) if setting == self.figure.setting else None,
                "ours": each.mean,
                "ours_half_width_95": each.half,
                "ratio_verdict": _nearness(self.verdict, scheme) if setting == self.figure.setting else None,
            }
            for setting, found in self.all.items()
            for scheme, each in found.items()
        ]


def trace_tables(replays: Results[Setup, TraceRun], experiments: Sequence[int]) -> list[TraceTable]:
    """Return a table for each figure, trace and network that was run."""
    made = []
    for figure in FIGURES:
        for trace in TRACES if figure.experiment in experiments else ():
            paper = figure.values if trace.paper and trace.paper == figure.on else {}
            for network in trace.networks:
                setup, metric = (trace.key, network), figure.metric
                policies = [policy for policy in POLICIES if replays.of(setup, policy)]
                ours = {policy: scaled(replays.value(setup, policy, metric), figure.factor) for policy in policies}
                comparable = all(replays.values(setup, "titan", metric))  # none of them is zero
                ratios = {
                    policy: replays.ratio(setup, policy, "titan", metric) for policy in policies if comparable
                }
                means = {policy: (ratios or ours)[policy].mean for policy in PAPER_POLICIES if policy in ours}
                verdict = judge(means, paper, figure.stated)
                made.append(TraceTable(figure, trace, network, paper, ours, ratios, verdict))
    return made


def testbed_tables(runs: Sequence[PlacementRun], experiments: Sequence[int]) -> list[PlacementTable]:
    """Return a table for each figure of the testbed."""
    made = []
    for figure in TESTBED:
        if figure.experiment in experiments:
            settings = [(model, workers) for model in MODELS for workers in WORKERS]
            every = {setting: estimates(runs, figure.measure, *setting) for setting in settings}
            ours = every[figure.setting]
            means = {scheme: each.mean for scheme, each in ours.items() if scheme in figure.values}
            made.append(PlacementTable(figure, ours, judge(means, figure.values), every))
    return made


def label(policy: str) -> str:
    """Return the name of a policy, with the paper's name if that is another."""
    return TEXT.label(policy, '{} ("{}")')


def _over_titan(values: Mapping[str, float], policy: str) -> float | None:
    """Return a value over Titan's, if both are known."""
    return values[policy] / values["titan"] if values.get("titan") and policy in values else None


def _nearness(verdict: Verdict, policy: str) -> str | None:
    """Say how near a policy's ratio is to the paper's, if it gives one."""
    return verdict.ratios[policy].words if policy in verdict.ratios else None


def verdict_text(verdict: Verdict) -> str:
    """Say what holds, and which pairs are swapped."""
    swapped = ", ".join(f"{PAPER_NAMES[low]} is not below {PAPER_NAMES[high]}" for low, high in verdict.swapped)
    return f"{verdict.word} ({swapped})" if swapped else verdict.word


def by_trace(made: Sequence[TraceTable]) -> list[list[TraceTable]]:
    """Group tables that differ in the network alone."""
    groups: dict[tuple[int, str], list[TraceTable]] = {}
    for table in made:
        groups.setdefault((table.figure.number, table.trace.key), []).append(table)
    return list(groups.values())


def trace_sheet(tables: Sequence[TraceTable], *, brief: bool = False) -> TextTable:
    """Show one figure on one trace, with the networks side by side; if brief, only the one compared first."""
    ordered = sorted(tables, key=lambda table: not table.first)
    shown = ordered[:1] if brief else ordered
    figure, trace, paper = ordered[0].figure, ordered[0].trace, ordered[0].paper
    heads = [head for table in shown for head in (f"ours, {table.network}", "to Titan", "verdict")]
    rows = []
    for policy in ordered[0].ours:
        stated = None if figure.ratios_only else paper.get(policy)
        cells = [label(policy), plain(stated), times(_over_titan(paper, policy))]
        for table in shown:
            found = table.ratios.get(policy)
            ratio = times(found.mean if found and brief else found)
            cells += [spread(table.ours[policy]), ratio, _nearness(table.verdict, policy) or MISSING]
        rows.append(cells)
    unit = f", {figure.unit}" if figure.unit else ""
    verdicts = "; ".join(f"{table.network}: {verdict_text(table.verdict)}" for table in ordered)
    title = f"Fig. {figure.number}, {figure.title}{unit}: {trace.label}"
    return TextTable(title, f"{sentence(verdicts)}.", ("", "paper", "to Titan", *heads), rows)


def testbed_sheet(table: PlacementTable) -> TextTable:
    """Show one figure of the testbed."""
    figure = table.figure
    means = {scheme: each.mean for scheme, each in table.ours.items()}
    rows = [
        [
            label(scheme),
            plain(figure.values.get(scheme)),
            times(_over_titan(figure.values, scheme)),
            spread(table.ours[scheme]) if scheme in table.ours else "must wait",
            times(_over_titan(means, scheme)),
            _nearness(table.verdict, scheme) or MISSING,
        ]
        for scheme in SCHEMES
    ]
    values = figure.model_dump(include={"number", "title", "unit", "model", "workers"})
    return TEXT.table("testbed", rows, verdict=sentence(verdict_text(table.verdict)), **values)


def verdict_sheet(made: Sequence[TraceTable], testbed: Sequence[PlacementTable]) -> TextTable:
    """Show the verdict on every figure, a column a trace."""
    columns = list(dict.fromkeys(table.trace.key for table in made)) + ["testbed"] * bool(testbed)
    found: dict[tuple[str, str], dict[str, str]] = {}
    for table in made:
        network = table.network + (" *" if table.first else "")
        name = f"Fig. {table.figure.number}, {table.figure.title}"
        found.setdefault((name, network), {})[table.trace.key] = table.verdict.short
    for each in testbed:
        found[f"Fig. {each.figure.number}, {each.figure.title}", "isolated *"] = {"testbed": each.verdict.short}
    rows = [[*row, *(cells.get(column, MISSING) for column in columns)] for row, cells in found.items()]
    return TEXT.table("verdicts", rows, *columns)
