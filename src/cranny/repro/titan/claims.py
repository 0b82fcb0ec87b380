"""What holds and what does not: the paper's claims in plain words, written from the numbers by rules."""

from collections.abc import Callable, Mapping, Sequence

from cranny.repro.claim import Claim, Holds
from cranny.repro.titan.study import Study
from cranny.repro.titan.tables import BarTable, Table, verdict_text
from cranny.repro.titan.values import PAPER_NAMES, Figure
from cranny.repro.verdict import Verdict
from cranny.repro.wording import plain, sentence, times

ALIKE = 0.02  # values that differ by less are called about the same


def claims(study: Study | None, made: Sequence[Table], bars: Sequence[BarTable]) -> list[Claim]:
    """Return what became of every claim."""
    told = [_figure(number, made) for number in dict.fromkeys(table.figure.number for table in made)]
    if study is not None:
        told += [
            claim for rule in (_packing, _names, _rank_map, _slower) for claim in [rule(made)] if claim is not None
        ]
    return [*told, *(_bars(table) for table in bars), _untested()]


def holds(verdict: Verdict) -> Holds:
    """Sum a verdict up: part of it holds if some pairs do, or the order without the ratios."""
    if verdict.holds:
        return "holds"
    return "holds in part" if verdict.kept else "does not hold"


def _figure(number: int, made: Sequence[Table]) -> Claim:
    """Tell of one figure: where the paper gives numbers, then the other traces, then the other network."""
    mine = [table for table in made if table.figure.number == number]
    figure = mine[0].figure
    first = [table for table in mine if table.first]
    main = next((table for table in first if table.paper), first[0])
    told = [_paper(figure), _ours(main), f"{sentence(verdict_text(main.verdict))}."]
    if main.verdict.swapped:
        moved = any("titan" in pair for pair in main.verdict.swapped)
        told.append(f"Titan's own place among them is {'not ' * moved}the paper's.")
    if main.verdict.ratios:
        nearness = ", ".join(
            f"{_name(policy)} {times(ratio.paper)} in the paper and {times(ratio.ours)} here"
            for policy, ratio in main.verdict.ratios.items()
        )
        told.append(f"Ratios to Titan: {nearness}.")
    for table in first:
        if table is not main:
            extra = "" if table.workload.paper else " (which the paper does not have)"
            told.append(f"On {table.workload.label}{extra}: {verdict_text(table.verdict)}.")
    told += [
        f"With the {table.network} network on {table.workload.label} the verdict differs: "
        f"{verdict_text(table.verdict)}."
        for table in mine
        if not table.first and table.verdict.word != _word_first(table, mine)
    ]
    return Claim(f"Fig. {number}: {figure.claim}", holds(main.verdict), " ".join(told))


def _word_first(table: Table, mine: Sequence[Table]) -> str:
    """Return the verdict of the same trace with the network that is compared first."""
    return next((each.verdict.word for each in mine if each.first and each.workload == table.workload), "")


def _paper(figure: Figure) -> str:
    """Give the paper's values."""
    if not figure.values:
        return f"The paper ({figure.place}) gives no numbers."
    unit = " times Titan's" if figure.ratios_only else _unit(figure)
    return f"The paper ({figure.place}): {_listed(figure.values)}{unit}."


def _ours(table: Table) -> str:
    """Give our values of the paper's schemes."""
    means = {policy: table.ours[policy].mean for policy in PAPER_NAMES if policy in table.ours}
    where = f"on {table.workload.label} with the {table.network} network"
    return f"Here, {where}: {_listed(means)}{_unit(table.figure)}."


def _listed(values: Mapping[str, float]) -> str:
    """List values by scheme, Titan first."""
    return ", ".join(f"{_name(policy)} {plain(values[policy])}" for policy in PAPER_NAMES if policy in values)


def _unit(figure: Figure) -> str:
    return f" {figure.unit}" if figure.unit else ""


def _name(policy: str) -> str:
    """Name a scheme as the paper does."""
    return PAPER_NAMES.get(policy, policy)


def _means(made: Sequence[Table], number: int, network: str) -> dict[str, Mapping[str, float]]:
    """Return the values of a figure by trace and policy."""
    return {
        table.workload.label: {policy: each.mean for policy, each in table.ours.items()}
        for table in made
        if (table.figure.number, table.network) == (number, network)
    }


def _packing(made: Sequence[Table]) -> Claim | None:
    """Compare Titan with true best fit on used machines."""
    return _against(
        made,
        2,
        "instant",
        "best-fit",
        "On packing: true best fit against Titan",
        lambda mine, rival: f"best fit {plain(rival)} machines, Titan {plain(mine)}",
    )


def _against(
    made: Sequence[Table],
    number: int,
    network: str,
    rival: str,
    title: str,
    tell: Callable[[float, float], str],
) -> Claim | None:
    """Compare Titan with a policy of another kind, on every trace."""
    found = {trace: values for trace, values in _means(made, number, network).items() if rival in values}
    if not found:
        return None
    words = {True: f"{rival} needs no more", False: "Titan leads"}
    told = []
    for trace, values in found.items():
        mine, other = values["titan"], values[rival]
        alike = abs(other - mine) <= ALIKE * mine
        outcome = "about the same" if alike else words[other < mine]
        told.append(f"{trace}: {tell(mine, other)} ({outcome}).")
    ahead = [trace for trace, values in found.items() if values[rival] <= values["titan"] * (1 + ALIKE)]
    where = "every trace" if len(ahead) == len(found) else ", ".join(ahead)
    head = f"{rival} is as good as Titan or better on {where}." if ahead else "Titan leads on every trace."
    return Claim(title, "beyond the paper", " ".join([head, *told]))


def _names(made: Sequence[Table]) -> Claim | None:
    """Compare the paper's baselines with the systems whose names they bear."""
    found = _means(made, 2, "instant")
    told = []
    for trace, values in found.items():
        for baseline, real in (("consolidate-idle", "elasticflow"), ("fragments-first", "hived")):
            if baseline in values and real in values:
                ratio = times(values[real] / values[baseline])
                told.append(
                    f'{trace}: the paper\'s "{PAPER_NAMES[baseline]}" uses {plain(values[baseline])} machines, '
                    f"{real} as its own paper has it {plain(values[real])} ({ratio})."
                )
    if not told:
        return None
    return Claim("The baselines are not the systems whose names they bear", "beyond the paper", " ".join(told))


def _rank_map(made: Sequence[Table]) -> Claim | None:
    """Tell Titan's machines from its map: best fit with and without the map, on traffic."""
    told, explained = [], []
    for trace, values in _means(made, 5, "instant").items():
        if not {"titan", "best-fit", "best-fit-mapped"} <= values.keys():
            continue
        titan, bare, mapped = values["titan"], values["best-fit"], values["best-fit-mapped"]
        saves = "" if titan < bare else " (Titan saves nothing here)"
        told.append(
            f"{trace}: Titan moves {plain(titan)} GB, best fit {plain(bare)}{saves}, best fit with Titan's rank "
            f"map {plain(mapped)}."
        )
        explained.append(mapped <= titan * (1 + ALIKE))
    if not told:
        return None
    head = (
        "What Titan saves in traffic over best fit is its rank map: with it, best fit moves no more than Titan."
        if all(explained)
        else "The rank map alone does not explain Titan's traffic on every trace."
    )
    return Claim("Titan's choice of machines against its rank map", "beyond the paper", " ".join([head, *told]))


def _slower(made: Sequence[Table]) -> Claim | None:
    """Compare used machines again when communication takes time."""
    return _against(
        made,
        2,
        "isolated",
        "best-fit-mapped",
        "Where communication takes time: best fit with Titan's rank map against Titan",
        lambda mine, rival: f"best fit with the map {plain(rival)} machines, Titan {plain(mine)}",
    )


def _bars(table: BarTable) -> Claim:
    """Tell of one figure of the testbed."""
    bars = table.bars
    ours = {scheme: each.mean for scheme, each in table.ours.items()}
    higher = bars.measure == "throughput"
    best = max if higher else min
    won = [
        setting
        for setting, found in table.all.items()
        if "titan" in found and found["titan"].mean == best(each.mean for each in found.values())
    ]
    told = (
        f"The paper ({bars.place}): {_listed(bars.values)} {bars.unit}. Here: {_listed(ours)} {bars.unit}. "
        f"{sentence(verdict_text(table.verdict))}. Over all {len(table.all)} settings of model and workers Titan "
        f"has the {'highest' if higher else 'least'} value in {len(won)}."
    )
    return Claim(f"Fig. {bars.number}: {bars.claim}", holds(table.verdict), told)


def _untested() -> Claim:
    """Name what a simulation cannot show."""
    return Claim(
        "What is not tested",
        "not tested",
        "Accuracy over time (Fig. 12) needs real training. Experiments 5 to 7 come from our model of "
        "communication time: gloo's own overhead, four containers that share a GPU, and background jobs that "
        "disturb others are not in it. Absolute gigabytes and profits depend on models and prices that the paper "
        "does not give: only orders and ratios are judged.",
    )
