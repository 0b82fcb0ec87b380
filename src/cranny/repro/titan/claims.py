"""What became of Titan's claims, in sentences that rules make from the numbers."""

from collections.abc import Iterator, Mapping, Sequence

from cranny.repro.claim import Claim, beyond, untested
from cranny.repro.number_format import plain, sentence, times
from cranny.repro.titan.paper import PAPER_NAMES, TraceFigure
from cranny.repro.titan.tables import PlacementTable, TraceTable, verdict_text

ALIKE = 0.02  # values that differ by less are called about the same
# Used machines of Titan and of another policy: figure, network, policy, title, and what sentences call the policy.
RIVALS = (
    ("instant", "best-fit", "On packing: true best fit against Titan", "best fit"),
    (
        "isolated", "best-fit-mapped",
        "Where communication takes time: best fit with Titan's rank map against Titan", "best fit with the map",
    ),
)  # fmt: skip
UNTESTED = (
    "Accuracy over time (Fig. 12) needs real training. Experiments 5 to 7 come from our model of communication "
    "time: gloo's own overhead, four containers that share a GPU, and background jobs that disturb others are "
    "not in it. Absolute gigabytes and profits depend on models and prices that the paper does not give: only "
    "orders and ratios are judged."
)


def claims(made: Sequence[TraceTable], testbed: Sequence[PlacementTable]) -> list[Claim]:
    """Return what became of every claim."""
    figures = [_figure(number, made) for number in dict.fromkeys(table.figure.number for table in made)]
    packing, slower = (_against(made, *rival) for rival in RIVALS)
    ours = [*packing, *_baselines(made), *_rank_map(made), *slower]
    return [*figures, *ours, *map(_testbed, testbed), untested(UNTESTED)]


def _figure(number: int, made: Sequence[TraceTable]) -> Claim:
    """Judge one figure: where the paper gives numbers, then the other traces, then the other network."""
    mine = [table for table in made if table.figure.number == number]
    figure = mine[0].figure
    first = [table for table in mine if table.first]
    main = next((table for table in first if table.paper), first[0])
    text = [_paper(figure), _ours(main), f"{sentence(verdict_text(main.verdict))}."]
    if main.verdict.swapped:
        moved = any("titan" in pair for pair in main.verdict.swapped)
        text.append(f"Titan's own place among them is {'not ' * moved}the paper's.")
    if main.verdict.ratios:
        nearness = ", ".join(
            f"{PAPER_NAMES[policy]} {times(ratio.paper)} in the paper and {times(ratio.ours)} here"
            for policy, ratio in main.verdict.ratios.items()
        )
        text.append(f"Ratios to Titan: {nearness}.")
    for table in first:
        if table is not main:
            extra = "" if table.trace.paper else " (which the paper does not have)"
            text.append(f"On {table.trace.label}{extra}: {verdict_text(table.verdict)}.")
    words = {table.trace: table.verdict.word for table in first}
    text += [
        f"With the {table.network} network on {table.trace.label} the verdict differs: "
        f"{verdict_text(table.verdict)}."
        for table in mine
        if not table.first and table.verdict.word != words.get(table.trace)
    ]
    return Claim(f"Fig. {number}: {figure.claim}", main.verdict.holds, " ".join(text))


def _paper(figure: TraceFigure) -> str:
    """Give the paper's values."""
    if not figure.values:
        return f"The paper ({figure.place}) gives no numbers."
    unit = " times Titan's" if figure.ratios_only else f" {figure.unit}".rstrip()
    return f"The paper ({figure.place}): {_listed(figure.values)}{unit}."


def _ours(table: TraceTable) -> str:
    """Give our values of the paper's schemes."""
    values = _listed({policy: each.mean for policy, each in table.ours.items()})
    where = f"on {table.trace.label} with the {table.network} network"
    return f"Here, {where}: {values}{f' {table.figure.unit}'.rstrip()}."


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


def _against(made: Sequence[TraceTable], network: str, rival: str, title: str, name: str) -> Iterator[Claim]:
    """Compare the machines that Titan uses with those of a policy of another kind, on every trace."""
    text, ahead = [], []
    for trace, values in _means(made, 2, network, rival):
        titan, other = values["titan"], values[rival]
        verdict = f"{rival} needs no more" if other < titan else "Titan leads"
        if abs(other - titan) <= ALIKE * titan:
            verdict = "about the same"
        text.append(f"{trace}: {name} {plain(other)} machines, Titan {plain(titan)} ({verdict}).")
        ahead += [trace] * (other <= titan * (1 + ALIKE))
    if text:
        where = "every trace" if len(ahead) == len(text) else ", ".join(ahead)
        head = f"{rival} is as good as Titan or better on {where}." if ahead else "Titan leads on every trace."
        yield beyond(title, " ".join([head, *text]))


def _baselines(made: Sequence[TraceTable]) -> Iterator[Claim]:
    """Compare the paper's baselines with the systems whose names they bear."""
    text = [
        f'{trace}: the paper\'s "{PAPER_NAMES[baseline]}" uses {plain(values[baseline])} machines, {system} as '
        f"its own paper has it {plain(values[system])} ({times(values[system] / values[baseline])})."
        for trace, values in _means(made, 2, "instant")
        for baseline, system in (("consolidate-idle", "elasticflow"), ("fragments-first", "hived"))
        if baseline in values and system in values
    ]
    if text:
        yield beyond("The baselines are not the systems whose names they bear", " ".join(text))


def _rank_map(made: Sequence[TraceTable]) -> Iterator[Claim]:
    """Separate Titan's choice of machines from its map: best fit with and without the map, on traffic."""
    text, explained = [], []
    for trace, values in _means(made, 5, "instant", "titan", "best-fit", "best-fit-mapped"):
        titan, bare, mapped = values["titan"], values["best-fit"], values["best-fit-mapped"]
        saves = "" if titan < bare else " (Titan saves nothing here)"
        text.append(
            f"{trace}: Titan moves {plain(titan)} GB, best fit {plain(bare)}{saves}, best fit with Titan's rank "
            f"map {plain(mapped)}."
        )
        explained.append(mapped <= titan * (1 + ALIKE))
    head = (
        "What Titan saves in traffic over best fit is its rank map: with it, best fit moves no more than Titan."
        if all(explained)
        else "The rank map alone does not explain Titan's traffic on every trace."
    )
    if text:
        yield beyond("Titan's choice of machines against its rank map", " ".join([head, *text]))


def _testbed(table: PlacementTable) -> Claim:
    """Judge one figure of the testbed."""
    figure = table.figure
    ours = {scheme: each.mean for scheme, each in table.ours.items()}
    higher = figure.measure == "throughput"
    best = max if higher else min
    won = [
        setting
        for setting, found in table.all.items()
        if "titan" in found and found["titan"].mean == best(each.mean for each in found.values())
    ]
    text = (
        f"The paper ({figure.place}): {_listed(figure.values)} {figure.unit}. Here: {_listed(ours)} "
        f"{figure.unit}. {sentence(verdict_text(table.verdict))}. Over all {len(table.all)} settings of model "
        f"and workers Titan has the {'highest' if higher else 'least'} value in {len(won)}."
    )
    return Claim(f"Fig. {figure.number}: {figure.claim}", table.verdict.holds, text)
