"""What became of Titan's claims, in sentences that rules make from the numbers."""

from collections.abc import Iterator, Mapping, Sequence

from cranny.repro.claim import Claim
from cranny.repro.number_format import plain, sentence
from cranny.repro.titan.paper import PAPER_NAMES, TEXT, TitanRival
from cranny.repro.titan.tables import PlacementTable, TraceTable, verdict_text

ALIKE = 0.02  # values that differ by less are called about the same


def claims(made: Sequence[TraceTable], testbed: Sequence[PlacementTable]) -> list[Claim]:
    """Return what became of every claim."""
    figures = [_figure(number, made) for number in dict.fromkeys(table.figure.number for table in made)]
    packing, slower = (_against(made, rival) for rival in TEXT.rivals)
    ours = [*packing, *_baselines(made), *_rank_map(made), *slower]
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
        ratios = [
            part("ratio", scheme=PAPER_NAMES[policy], paper=ratio.paper, ours=ratio.ours)
            for policy, ratio in main.verdict.ratios.items()
        ]
        text.append(part("ratios", ratios=", ".join(ratios)))
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
    return ", ".join(f"{name} {plain(values[policy])}" for policy, name in PAPER_NAMES.items() if policy in values)


def _means(
    made: Sequence[TraceTable], number: int, network: str, *policies: str
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the values of a figure by policy, for each trace that has those of all of some policies."""
    for table in made:
        if (table.figure.number, table.network) == (number, network) and set(policies) <= table.ours.keys():
            yield table.trace.label, {policy: each.mean for policy, each in table.ours.items()}


def _against(made: Sequence[TraceTable], rival: TitanRival) -> Iterator[Claim]:
    """Compare the machines that Titan uses with those of a policy of another kind, on every trace."""
    part, text, ahead = TEXT.claims["rival"].part, [], []
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
    text = [
        TEXT.claims["baselines"].part(
            "trace",
            trace=trace,
            name=PAPER_NAMES[baseline],
            baseline=values[baseline],
            system=system,
            own=values[system],
            ratio=values[system] / values[baseline],
        )
        for trace, values in _means(made, 2, "instant")
        for baseline, system in (("consolidate-idle", "elasticflow"), ("fragments-first", "hived"))
        if baseline in values and system in values
    ]
    if text:
        yield TEXT.claim("baselines", text=" ".join(text))


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
        number=figure.number,
        claim=figure.claim,
        place=figure.place,
        paper=_listed(figure.values),
        ours=_listed({scheme: each.mean for scheme, each in table.ours.items()}),
        unit=figure.unit,
        verdict=sentence(verdict_text(table.verdict)),
        settings=len(table.all),
        best="highest" if higher else "least",
        won=len(won),
    )
