"""Results of Titan's figures: the paper's value, ours, their ratios to Titan, verdicts, and sentences on them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.claim import Claim, Verdict, judge
from cranny.repro.experiment import Results, scaled
from cranny.repro.number_format import plain, sentence, spread, times
from cranny.repro.page import Record
from cranny.repro.titan.paper import POLICIES, TEXT, PlacementFigure, TitanTrace, TraceFigure
from cranny.repro.titan.replays import Setup, TraceRun
from cranny.repro.titan.testbed import SCHEMES, Testbed

ALIKE = 0.02  # values that differ by less are called about the same


class TraceTable(NamedTuple):
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
                "name_in_paper": TEXT.names.get(policy),
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


class PlacementTable(NamedTuple):
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
                "name_in_paper": TEXT.names.get(scheme),
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
    for figure in TEXT.figures:
        for trace in TEXT.traces if figure.experiment in experiments else ():
            paper = figure.values if trace.paper and trace.paper == figure.on else {}
            for network in trace.networks:
                setup, metric = (trace.key, network), figure.metric
                policies = [policy for policy in POLICIES if replays.of(setup, policy)]
                ours = {policy: scaled(replays.value(setup, policy, metric), figure.factor) for policy in policies}
                comparable = all(replays.values(setup, "titan", metric))  # none of them is zero
                ratios = {
                    policy: replays.ratio(setup, policy, "titan", metric) for policy in policies if comparable
                }
                means = {policy: (ratios or ours)[policy].mean for policy in TEXT.names if policy in ours}
                verdict = judge(means, paper, figure.stated)
                made.append(TraceTable(figure, trace, network, paper, ours, ratios, verdict))
    return made


def testbed_tables(runs: Testbed, experiments: Sequence[int]) -> list[PlacementTable]:
    """Return a table for each figure of the testbed."""
    made = []
    for figure in TEXT.testbed:
        if figure.experiment in experiments:
            every = {
                setting: {
                    scheme: runs.value(setting, scheme, figure.measure)
                    for scheme in SCHEMES
                    if runs.of(setting, scheme)
                }
                for setting in runs.setups
            }
            ours = every[figure.setting]
            means = {scheme: each.mean for scheme, each in ours.items() if scheme in figure.values}
            made.append(PlacementTable(figure, ours, judge(means, figure.values), every))
    return made


def _over_titan(values: Mapping[str, float], policy: str) -> float | None:
    """Return a value over Titan's, if both are known."""
    return values[policy] / values["titan"] if values.get("titan") and policy in values else None


def _nearness(verdict: Verdict, policy: str) -> str | None:
    """Say how near a policy's ratio is to the paper's, if it gives one."""
    return verdict.ratios[policy].words if policy in verdict.ratios else None


def verdict_text(verdict: Verdict) -> str:
    """Say what holds, and which pairs are swapped."""
    swapped = ", ".join(f"{TEXT.names[low]} is not below {TEXT.names[high]}" for low, high in verdict.swapped)
    return f"{verdict.word} ({swapped})" if swapped else verdict.word


def by_trace(made: Sequence[TraceTable]) -> list[list[TraceTable]]:
    """Group tables that differ in the network alone."""
    groups = groupby(made, lambda table: (table.figure.number, table.trace.key))
    return [list(group) for _, group in groups]


def trace_sheet(tables: Sequence[TraceTable], *, brief: bool = False) -> TextTable:
    """Show one figure on one trace, with the networks side by side; if brief, only the one compared first."""
    ordered = sorted(tables, key=lambda table: not table.first)
    shown = ordered[:1] if brief else ordered
    figure, trace, paper = ordered[0].figure, ordered[0].trace, ordered[0].paper
    heads = [head for table in shown for head in (f"ours, {table.network}", "to Titan", "verdict")]
    rows = []
    for policy in ordered[0].ours:
        stated = None if figure.ratios_only else paper.get(policy)
        cells = [TEXT.label(policy), plain(stated), times(_over_titan(paper, policy))]
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
            TEXT.label(scheme),
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


def claims(made: Sequence[TraceTable], testbed: Sequence[PlacementTable]) -> list[Claim]:
    """Return what became of every claim."""
    figures = [_figure(number, made) for number in dict.fromkeys(table.figure.number for table in made)]
    ours = [*_against(made, 0), *_baselines(made), *_rank_map(made), *_against(made, 1)]
    return [*figures, *ours, *map(_testbed, testbed), TEXT.not_tested]


def _figure(number: int, made: Sequence[TraceTable]) -> Claim:
    """Judge one figure: where the paper gives numbers, then the other traces, then the other network."""
    mine = [table for table in made if table.figure.number == number]
    figure, part = mine[0].figure, TEXT.claims["figure"].part
    first = [table for table in mine if table.first]
    main = next((table for table in first if table.paper), first[0])
    unit = f" {figure.unit}".rstrip()
    paper = _listed(figure.values)
    ours = _listed({policy: each.mean for policy, each in main.ours.items()})
    text = [
        part("paper", place=figure.place, values=paper, unit=" times Titan's" if figure.ratios_only else unit)
        if figure.values
        else part("no_numbers", place=figure.place),
        part("ours", trace=main.trace.label, network=main.network, values=ours, unit=unit),
        f"{sentence(verdict_text(main.verdict))}.",
    ]
    if main.verdict.swapped:
        moved = any("titan" in pair for pair in main.verdict.swapped)
        text.append(part("own_place", negated="not " * moved))
    if main.verdict.ratios:
        rows = [{"scheme": TEXT.names[name], **ratio._asdict()} for name, ratio in main.verdict.ratios.items()]
        text.append(part("ratios", ratios=TEXT.claims["figure"].listed("ratio", rows, ", ")))
    for table in first:
        if table is not main:
            extra = "" if table.trace.paper else part("extra")
            text.append(part("on", trace=table.trace.label, extra=extra, verdict=verdict_text(table.verdict)))
    words = {table.trace: table.verdict.word for table in first}
    text += [
        part("network", network=table.network, trace=table.trace.label, verdict=verdict_text(table.verdict))
        for table in mine
        if not table.first and table.verdict.word != words.get(table.trace)
    ]
    return TEXT.claim("figure", main.verdict.holds, number=number, claim=figure.claim, text=" ".join(text))


def _listed(values: Mapping[str, float]) -> str:
    """List the values of the paper's schemes, Titan first."""
    return ", ".join(f"{name} {plain(values[policy])}" for policy, name in TEXT.names.items() if policy in values)


def _means(
    made: Sequence[TraceTable], number: int, network: str, *policies: str
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the values of a figure by policy, for each trace that has those of all of some policies."""
    for table in made:
        if (table.figure.number, table.network) == (number, network) and set(policies) <= table.ours.keys():
            yield table.trace.label, {policy: each.mean for policy, each in table.ours.items()}


def _against(made: Sequence[TraceTable], number: int) -> Iterator[Claim]:
    """Compare the machines that Titan uses with those of a policy of another kind, on every trace."""
    rival, part, text, ahead = TEXT.rivals[number], TEXT.claims["rival"].part, [], []
    for trace, values in _means(made, 2, rival.network, rival.policy):
        titan, other = values["titan"], values[rival.policy]
        verdict = "alike" if abs(other - titan) <= ALIKE * titan else "lower" if other < titan else "higher"
        found = part(verdict, rival=rival.policy)
        text.append(part("trace", trace=trace, name=rival.name, other=other, titan=titan, verdict=found))
        ahead += [trace] * (other <= titan * (1 + ALIKE))
    if text:
        where = "every trace" if len(ahead) == len(text) else ", ".join(ahead)
        head = part("ahead" if ahead else "behind", rival=rival.policy, where=where)
        yield TEXT.claim("rival", title=rival.title, text=" ".join([head, *text]))


def _baselines(made: Sequence[TraceTable]) -> Iterator[Claim]:
    """Compare the paper's baselines with the systems whose names they bear."""
    rows = []
    for trace, values in _means(made, 2, "instant"):
        for baseline, system in (("consolidate-idle", "elasticflow"), ("fragments-first", "hived")):
            if baseline in values and system in values:
                theirs, own = values[baseline], values[system]
                found = {"baseline": theirs, "own": own, "ratio": own / theirs}
                rows.append({"trace": trace, "name": TEXT.names[baseline], "system": system, **found})
    if rows:
        yield TEXT.claim("baselines", text=TEXT.claims["baselines"].listed("trace", rows, " "))


def _rank_map(made: Sequence[TraceTable]) -> Iterator[Claim]:
    """Separate Titan's choice of machines from its map: best fit with and without the map, on traffic."""
    part, text, explained = TEXT.claims["rank_map"].part, [], []
    for trace, values in _means(made, 5, "instant", "titan", "best-fit", "best-fit-mapped"):
        titan, bare, mapped = values["titan"], values["best-fit"], values["best-fit-mapped"]
        saves = "" if titan < bare else part("saves")
        text.append(part("trace", trace=trace, titan=titan, bare=bare, saves=saves, mapped=mapped))
        explained.append(mapped <= titan * (1 + ALIKE))
    if text:
        head = part("explained" if all(explained) else "unexplained")
        yield TEXT.claim("rank_map", text=" ".join([head, *text]))


def _testbed(table: PlacementTable) -> Claim:
    """Judge one figure of the testbed."""
    figure = table.figure
    higher = figure.measure == "throughput"
    best = max if higher else min
    won = [
        setting
        for setting, found in table.all.items()
        if "titan" in found and found["titan"].mean == best(each.mean for each in found.values())
    ]
    return TEXT.claim(
        "testbed",
        table.verdict.holds,
        paper=_listed(figure.values),
        ours=_listed({scheme: each.mean for scheme, each in table.ours.items()}),
        verdict=sentence(verdict_text(table.verdict)),
        settings=len(table.all),
        best="highest" if higher else "least",
        won=len(won),
        **figure.model_dump(include={"number", "claim", "place", "unit"}),
    )
