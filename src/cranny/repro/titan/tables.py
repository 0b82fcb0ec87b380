"""The tables: for each figure the paper's value, ours, their ratios to Titan, and a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.titan.study import PAPER_POLICIES, Study, Workload
from cranny.repro.titan.testbed import MODELS, SCHEMES, WORKERS, Outcome, estimates
from cranny.repro.titan.values import FIGURES, PAPER_NAMES, TESTBED, Bars, Figure
from cranny.repro.verdict import Verdict, judge
from cranny.repro.wording import plain, sentence, spread, times


@dataclass(frozen=True, slots=True)
class Table:
    """One figure on one trace with one network: what every policy came to, and what that says of the paper."""

    figure: Figure
    workload: Workload
    network: str
    paper: Mapping[str, float]  # its values, if it gives any for this trace
    ours: Mapping[str, Estimate]  # in the figure's unit
    ratios: Mapping[str, Estimate]  # to Titan
    verdict: Verdict

    @property
    def first(self) -> bool:
        """Say whether this is the network that the figure is compared with first."""
        return self.network == self.figure.network

    def records(self) -> list[dict[str, Any]]:
        """Return a row a policy, for files."""
        return [
            {
                "figure": self.figure.number,
                "measure": self.figure.title,
                "unit": self.figure.unit,
                "trace": self.workload.key,
                "network": self.network,
                "policy": policy,
                "name_in_paper": PAPER_NAMES.get(policy),
                "paper": None if self.figure.ratios_only else self.paper.get(policy),
                "paper_ratio_to_titan": ratio_to_titan(self.paper, policy),
                "ours": found.mean,
                "ours_half_width_95": found.half,
                "ratio_to_titan": self.ratios[policy].mean if policy in self.ratios else None,
                "ratio_half_width_95": self.ratios[policy].half if policy in self.ratios else None,
                "ratio_verdict": word(self.verdict, policy) or None,
                "figure_verdict": self.verdict.word,
            }
            for policy, found in self.ours.items()
        ]


def ratio_to_titan(values: Mapping[str, float], policy: str) -> float | None:
    """Return a value over Titan's, if both are there."""
    return values[policy] / values["titan"] if values.get("titan") and policy in values else None


def word(verdict: Verdict, policy: str) -> str:
    """Say how near a policy's ratio is to the paper's."""
    return verdict.ratios[policy].words if policy in verdict.ratios else ""


def tables(study: Study, experiments: Sequence[int]) -> list[Table]:
    """Return a table for each figure, trace and network that was run."""
    made = []
    for figure in FIGURES:
        if figure.experiment not in experiments:
            continue
        for work in study.workloads:
            paper = figure.values if work.paper and work.paper == figure.on else {}
            for network in work.networks:
                found = study.estimates(work.key, network, figure.metric)
                ours = {policy: scaled(each, figure.factor) for policy, each in found.items()}
                ratios = study.ratios(work.key, network, figure.metric)
                means = {policy: (ratios or ours)[policy].mean for policy in PAPER_POLICIES if policy in ours}
                verdict = judge(means, paper, figure.said)
                made.append(Table(figure, work, network, paper, ours, ratios, verdict))
    return made


def scaled(found: Estimate, factor: float) -> Estimate:
    """Return an estimate in another unit."""
    return Estimate(found.mean * factor, None if found.half is None else found.half * factor)


def figure_sheet(both: Sequence[Table], *, brief: bool = False) -> TextTable:
    """Show one figure on one trace, with the networks side by side; if brief, only the one compared first."""
    ordered = sorted(both, key=lambda table: not table.first)
    shown = ordered[:1] if brief else ordered
    figure, work = ordered[0].figure, ordered[0].workload
    heads = [head for table in shown for head in (f"ours, {table.network}", "to Titan", "verdict")]
    rows = []
    for policy in ordered[0].ours:
        name = PAPER_NAMES.get(policy)
        label = f'{policy} ("{name}")' if name and name.lower() != policy else policy
        ratio = ratio_to_titan(ordered[0].paper, policy)
        paper = None if figure.ratios_only else ordered[0].paper.get(policy)
        cells = [label, plain(paper), times(ratio)]
        for table in shown:
            found = table.ratios.get(policy)
            ratio_cell = times(found.mean if found and brief else found)
            cells += [spread(table.ours[policy]), ratio_cell, word(table.verdict, policy) or MISSING]
        rows.append(cells)
    unit = f", {figure.unit}" if figure.unit else ""
    verdicts = "; ".join(f"{table.network}: {verdict_text(table.verdict)}" for table in ordered)
    return TextTable(
        f"Fig. {figure.number}, {figure.title}{unit}: {work.label}",
        f"{sentence(verdicts)}.",
        ("", "paper", "to Titan", *heads),
        rows,
    )


def verdict_text(verdict: Verdict) -> str:
    """Say what holds, and which pairs are swapped."""
    swapped = ", ".join(f"{PAPER_NAMES[low]} is not below {PAPER_NAMES[high]}" for low, high in verdict.swapped)
    return f"{verdict.word} ({swapped})" if swapped else verdict.word


def by_figure_and_trace(made: Sequence[Table]) -> list[list[Table]]:
    """Group tables that differ in the network alone."""
    groups: dict[tuple[int, str], list[Table]] = {}
    for table in made:
        groups.setdefault((table.figure.number, table.workload.key), []).append(table)
    return list(groups.values())


def verdict_sheet(made: Sequence[Table], bars: Sequence["BarTable"]) -> TextTable:
    """Show what became of every figure, a column a trace."""
    columns = list(dict.fromkeys(table.workload.key for table in made))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for table in made:
        name = f"Fig. {table.figure.number}, {table.figure.title}"
        network = table.network + (" *" if table.first else "")
        found.setdefault((name, network), {})[table.workload.key] = table.verdict.short
    rows = [[*row, *(cells.get(column, MISSING) for column in columns)] for row, cells in found.items()]
    if bars:
        columns.append("testbed")
        rows = [[*row, MISSING] for row in rows]
        blank = [MISSING] * (len(columns) - 1)
        rows += [
            [f"Fig. {each.bars.number}, {each.bars.title}", "isolated *", *blank, each.verdict.short]
            for each in bars
        ]
    return TextTable(
        "Verdicts",
        "holds: the paper's order, and its ratios to Titan within 25 % where it gives numbers. order only: not "
        "the ratios. in part: some pairs are swapped. * the network that a figure is compared with first.",
        ("", "network", *columns),
        rows,
    )


@dataclass(frozen=True, slots=True)
class BarTable:
    """One figure of the testbed: the setting that the text gives numbers for, and all the others."""

    bars: Bars
    ours: Mapping[str, Estimate]
    verdict: Verdict
    all: Mapping[tuple[str, int], Mapping[str, Estimate]]  # by model and workers

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each setting and scheme, for files."""
        rows = []
        for (model, workers), found in self.all.items():
            stated = (model, workers) == (self.bars.model, self.bars.workers)
            rows += [
                {
                    "figure": self.bars.number,
                    "measure": self.bars.title,
                    "unit": self.bars.unit,
                    "model": model,
                    "workers": workers,
                    "policy": scheme,
                    "name_in_paper": PAPER_NAMES.get(scheme),
                    "paper": self.bars.values.get(scheme) if stated else None,
                    "ours": each.mean,
                    "ours_half_width_95": each.half,
                    "ratio_verdict": (word(self.verdict, scheme) or None) if stated else None,
                }
                for scheme, each in found.items()
            ]
        return rows


def bar_tables(outcomes: Sequence[Outcome], experiments: Sequence[int]) -> list[BarTable]:
    """Return a table for each figure of the testbed."""
    made = []
    for bars in TESTBED:
        if bars.experiment in experiments:
            every = {
                (model, workers): estimates(outcomes, bars.measure, model, workers)
                for model in MODELS
                for workers in WORKERS
            }
            ours = every[bars.model, bars.workers]
            means = {scheme: each.mean for scheme, each in ours.items() if scheme in bars.values}
            made.append(BarTable(bars, ours, judge(means, bars.values), every))
    return made


def bar_sheet(table: BarTable) -> TextTable:
    """Show one figure of the testbed."""
    bars = table.bars
    means = {scheme: each.mean for scheme, each in table.ours.items()}
    rows = []
    for scheme in SCHEMES:
        name = PAPER_NAMES.get(scheme)
        rows.append(
            [
                f'{scheme} ("{name}")' if name and name.lower() != scheme else scheme,
                plain(bars.values.get(scheme)),
                times(ratio_to_titan(bars.values, scheme)),
                spread(table.ours[scheme]) if scheme in table.ours else "must wait",
                times(ratio_to_titan(means, scheme)),
                word(table.verdict, scheme) or MISSING,
            ]
        )
    return TextTable(
        f"Fig. {bars.number}, {bars.title}, {bars.unit}: {bars.model}, {bars.workers} workers",
        f"{sentence(verdict_text(table.verdict))}. Mean over the layouts of background jobs that fit the text.",
        ("", "paper", "to Titan", "ours", "to Titan", "verdict"),
        rows,
    )
