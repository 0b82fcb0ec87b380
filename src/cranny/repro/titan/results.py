"""Results of Titan's figures: the paper's value, ours, their ratios to Titan, verdicts, and sentences on them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from cranny.model.validate import counted
from cranny.report.confidence import Estimate, estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.claim import Claim, Holds, OpenChoice, Reading, Verdict, judge
from cranny.repro.experiment import Results, scaled
from cranny.repro.number_format import plain, sentence, spread, times
from cranny.repro.page import Record
from cranny.repro.titan.paper import ALL_POLICIES, TEXT, PlacementFigure, TitanReading, TitanTrace, TraceFigure
from cranny.repro.titan.replays import Setup, TraceRun
from cranny.repro.titan.testbed import SCHEMES, Testbed


class ReadingTable(NamedTuple):
    """A figure under another reading of what the paper leaves open."""

    reading: TitanReading
    ratios: Mapping[str, Estimate]  # to Titan
    verdict: Verdict


class TraceTable(NamedTuple):
    """One figure on one trace with one network: the values of every policy, and the verdict on the paper's."""

    figure: TraceFigure
    trace: TitanTrace
    network: str
    paper: Mapping[str, float]  # its values, if it gives any for this trace
    ours: Mapping[str, Estimate]  # in the figure's unit
    ratios: Mapping[str, Estimate]  # to Titan
    verdict: Verdict
    replays: Results[Setup, TraceRun]
    readings: Sequence[ReadingTable] = ()

    def ratio(self, policy: str, base: str) -> float:
        """Return the values of one policy over those of another, seed by seed."""
        return self.replays.ratio(Setup(self.trace.key, self.network), policy, base, self.figure.metric).mean

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
    ratios: Mapping[str, Estimate]  # to Titan
    verdict: Verdict
    all: Mapping[tuple[str, int], Mapping[str, Estimate]]  # by model and workers
    readings: Sequence[ReadingTable] = ()

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


def trace_tables(
    replays: Results[Setup, TraceRun], experiments: Sequence[int], *, quick: bool = False
) -> list[TraceTable]:
    """Return a table for each figure, trace and network that was run; a quick run gets no verdicts."""
    made = []
    for figure in TEXT.figures:
        for trace in TEXT.traces if figure.experiment in experiments else ():
            paper = figure.values if trace.paper and trace.paper == figure.on else {}
            for network in trace.networks:
                setup, metric = Setup(trace.key, network), figure.metric
                policies = [policy for policy in ALL_POLICIES if replays.of(setup, policy)]
                ours = {policy: scaled(replays.value(setup, policy, metric), figure.factor) for policy in policies}
                comparable = all(replays.values(setup, "titan", metric))  # none of them is zero
                ratios = {
                    policy: replays.ratio(setup, policy, "titan", metric) for policy in policies if comparable
                }
                verdict = _judged(ratios or ours, figure, paper, quick=quick)
                readings = [
                    ReadingTable(reading, found, _judged(found, figure, paper, quick=quick))
                    for reading in TEXT.readings
                    if figure.number in reading.figures and (found := _reread(replays, setup, reading, metric))
                ]
                made.append(TraceTable(figure, trace, network, paper, ours, ratios, verdict, replays, readings))
    return made


def _judged(
    values: Mapping[str, Estimate], figure: TraceFigure, paper: Mapping[str, float], *, quick: bool
) -> Verdict:
    means = {policy: values[policy].mean for policy in TEXT.names if policy in values}
    return Verdict((), (), {}) if quick else judge(means, paper, figure.stated)


def _reread(
    replays: Results[Setup, TraceRun], setup: Setup, reading: TitanReading, metric: str
) -> dict[str, Estimate]:
    """Return the paper's schemes over Titan under another reading; nothing if that was not run there."""
    anew = setup._replace(reading=reading.key)

    def cell(scheme: str) -> tuple[Setup, str]:
        return (anew, scheme) if replays.of(anew, scheme) else (setup, reading.runs(scheme))

    if not any(cell(scheme) != (setup, scheme) and replays.of(*cell(scheme)) for scheme in TEXT.names):
        return {}
    pairs = {scheme: replays.paired(*cell(scheme), *cell("titan"), metric) for scheme in TEXT.names}
    return {
        scheme: estimate([value / titan for value, titan in both])
        for scheme, both in pairs.items()
        if both and all(titan for _, titan in both)
    }


def testbed_tables(runs: Mapping[str, Testbed], experiments: Sequence[int]) -> list[PlacementTable]:
    """Return a table for each figure of the testbed; `runs` are by the key of their reading, ours has none."""
    made = []
    for figure in TEXT.testbed:
        if figure.experiment in experiments:
            every = {
                setting: {
                    scheme: runs[""].value(setting, scheme, figure.measure)
                    for scheme in SCHEMES
                    if runs[""].of(setting, scheme)
                }
                for setting in runs[""].setups
            }
            ratios = _layout_ratios(runs[""], figure)
            readings = []
            for reading in TEXT.readings:
                if reading.key in runs and figure.number in reading.figures:
                    found = _layout_ratios(runs[reading.key], figure)
                    readings.append(ReadingTable(reading, found, _compared(found, figure)))
            ours = every[figure.setting]
            made.append(PlacementTable(figure, ours, ratios, _compared(ratios, figure), every, readings))
    return made


def _layout_ratios(runs: Testbed, figure: PlacementFigure) -> dict[str, Estimate]:
    """Return every scheme over Titan, layout by layout, for those in which both can run."""
    schemes = [scheme for scheme in SCHEMES if runs.of(figure.setting, scheme)]
    return {scheme: runs.ratio(figure.setting, scheme, "titan", figure.measure) for scheme in schemes}


def _compared(ratios: Mapping[str, Estimate], figure: PlacementFigure) -> Verdict:
    means = {scheme: each.mean for scheme, each in ratios.items() if scheme in figure.values}
    return judge(means, figure.values)


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
            ours = spread(table.ours[policy]) if policy in table.ours else MISSING
            cells += [ours, ratio, _nearness(table.verdict, policy) or MISSING]
        rows.append(cells)
    unit = f", {figure.unit}" if figure.unit else ""
    verdicts = "; ".join(f"{table.network}: {verdict_text(table.verdict)}" for table in ordered)
    title = f"Fig. {figure.number}, {figure.title}{unit}: {trace.label}"
    return TextTable(title, f"{sentence(verdicts)}.", ("", "paper", "to Titan", *heads), rows)


def testbed_sheet(table: PlacementTable) -> TextTable:
    """Show one figure of the testbed."""
    figure = table.figure
    rows = [
        [
            TEXT.label(scheme),
            plain(figure.values.get(scheme)),
            times(_over_titan(figure.values, scheme)),
            spread(table.ours[scheme]) if scheme in table.ours else "must wait",
            times(table.ratios.get(scheme)),
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
    """Return what became of every claim of the paper."""
    figures = [_figure(number, made) for number in dict.fromkeys(table.figure.number for table in made)]
    return [*figures, *map(_testbed, testbed)]


def _figure(number: int, made: Sequence[TraceTable]) -> Claim:
    """Judge one figure where the paper gives numbers, with each network; then the other traces."""
    mine = [table for table in made if table.figure.number == number]
    figure, part = mine[0].figure, TEXT.claims["figure"].part
    first = [table for table in mine if table.first]
    main = next((table for table in first if table.paper), first[0])
    both = sorted((table for table in mine if table.trace == main.trace), key=lambda table: not table.first)
    readings = [
        Reading(
            part("network", network=table.network),
            _by_name(table.ratios or table.ours),
            _holds(table.verdict),
            table.verdict.parts,
        )
        for table in both
    ]
    readings += [_read(each, main.network) for each in main.readings]
    others = {
        "trace": [table.verdict for table in first if table is not main],
        "reading": [*(each.verdict for each in both[1:]), *(each.verdict for each in main.readings)],
    }
    where = [
        part(kind, held=_whole(found), all=counted(len(found), f"other {kind}"))
        for kind, found in others.items()
        if found
    ]
    return TEXT.claim(
        "figure",
        readings,
        _stated(figure.values),
        number=number,
        claim=figure.claim,
        source=part("numbers" if figure.values else "order", place=figure.place),
        trace=main.trace.label,
        verdict=verdict_text(main.verdict),
        elsewhere=part("elsewhere", where=" and ".join(where)) if where else "",
        title=figure.title,
        to="times Titan's" if main.ratios else figure.unit,
    )


def _read(table: ReadingTable, network: str = "") -> Reading:
    """Return what becomes of a claim under another reading."""
    name = f"{table.reading.name}, {network} network" if network else table.reading.name
    return Reading(name, _by_name(table.ratios), _holds(table.verdict), table.verdict.parts)


def _whole(verdicts: Iterable[Verdict]) -> int:
    """Count the verdicts by which the paper's order holds in all pairs."""
    return sum(bool(verdict.kept) and not verdict.swapped for verdict in verdicts)


def _holds(verdict: Verdict) -> Holds:
    """Return the verdict, if there is anything to judge."""
    return verdict.holds if verdict.kept or verdict.swapped else "no verdict"


def left_open(made: Sequence[TraceTable], testbed: Sequence[PlacementTable]) -> list[OpenChoice]:
    """Return what the paper leaves open, with the ratios to Titan of each figure under both readings of it."""
    tables: list[TraceTable | PlacementTable] = [table for table in made if table.first and table.paper]
    found = []
    for choice in TEXT.readings:
        for table in [*tables, *testbed]:
            for each in [each for each in table.readings if each.reading == choice]:
                both = [(choice.ours, table.ratios, table.verdict), (choice.name, each.ratios, each.verdict)]
                readings = [
                    Reading(name, _rivals(ratios), _holds(verdict), verdict.parts)
                    for name, ratios, verdict in both
                ]
                found.append(OpenChoice(f"{choice.question} (Fig. {table.figure.number})", readings))
    return found


def _by_name(values: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the values of the paper's schemes by their names there, Titan first."""
    return {name: values[policy] for policy, name in TEXT.names.items() if policy in values}


def _rivals(ratios: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the ratios to Titan of the others, by their names in the paper."""
    return {name: value for name, value in _by_name(ratios).items() if name != TEXT.names["titan"]}


def _stated(values: Mapping[str, float]) -> dict[str, float]:
    """Return the paper's values by name, as multiples of Titan's."""
    return {name: values[policy] / values["titan"] for policy, name in TEXT.names.items() if policy in values}


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
    ours = Reading("ours", _by_name(table.ratios), table.verdict.holds, table.verdict.parts)
    return TEXT.claim(
        "testbed",
        [ours, *map(_read, table.readings)],
        _stated(figure.values),
        verdict=sentence(verdict_text(table.verdict)),
        held=_whole(each.verdict for each in table.readings),
        all=counted(len(table.readings), "other reading"),
        settings=len(table.all),
        best="highest" if higher else "least",
        won=len(won),
        **figure.model_dump(include={"number", "claim", "place", "title"}),
    )
