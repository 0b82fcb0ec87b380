"""Questions of ours that the paper does not ask: true best fit, the systems themselves, what the map is worth."""

from collections.abc import Iterator, Mapping, Sequence

from cranny.repro.claim import Claim, Reading
from cranny.repro.experiment import scaled
from cranny.repro.number_format import sentence
from cranny.repro.titan.paper import READINGS, TEXT
from cranny.repro.titan.replays import Setup
from cranny.repro.titan.results import TraceTable

ALIKE = 0.02  # values that differ by less are called about the same
SYSTEMS = {"consolidate-idle": "elasticflow", "fragments-first": "hived"}
MAP = {"titan": "Titan", "best-fit": "best fit", "best-fit-mapped": "best fit, mapped"}


def beyond(made: Sequence[TraceTable]) -> list[Claim]:
    """Return what we find on each question."""
    return [*_against(made, 0), *_baselines(made), *_rank_map(made), *_against(made, 1)]


def _having(made: Sequence[TraceTable], number: int, network: str, *policies: str) -> list[TraceTable]:
    """Return the tables of a figure that have the values of all of some policies, a trace each."""
    mine = [table for table in made if (table.figure.number, table.network) == (number, network)]
    return [table for table in mine if set(policies) <= table.ratios.keys()]


def _of_trace(table: TraceTable, names: Mapping[str, str]) -> Reading:
    """Return the values of some policies on a trace, by the names that they are shown with."""
    return Reading(table.trace.label, {name: table.ours[policy] for policy, name in names.items()})


def _against(made: Sequence[TraceTable], number: int) -> Iterator[Claim]:
    """Compare the machines that Titan uses with those of a policy of another kind, on every trace."""
    rival, part = TEXT.rivals[number], TEXT.claims["rival"].part
    tables = _having(made, 2, rival.network, rival.policy)
    traces: dict[str, list[str]] = {}
    for table in tables:
        ratio = table.ratios[rival.policy].mean
        word = "alike" if abs(ratio - 1) <= ALIKE else "lower" if ratio < 1 else "higher"
        traces.setdefault(word, []).append(table.trace.label)
    if tables:
        found = [
            part(word, where="every trace" if len(names) == len(tables) else " and ".join(names))
            for word, names in traces.items()
        ]
        readings = [_of_trace(table, {"titan": "Titan", rival.policy: rival.name}) for table in tables]
        yield TEXT.claim("rival", readings, title=rival.title, rival=sentence(rival.name), found="; ".join(found))


def _baselines(made: Sequence[TraceTable]) -> Iterator[Claim]:
    """Compare the paper's baselines with the systems whose names they bear."""
    tables = _having(made, 2, "instant", *SYSTEMS, *SYSTEMS.values())
    names = {policy: TEXT.label(policy) for both in SYSTEMS.items() for policy in both}
    if tables:
        rows = []
        for baseline, system in SYSTEMS.items():
            ratios = [table.ratio(system, baseline) for table in tables]
            rows.append({"system": system, "baseline": baseline, "least": min(ratios), "most": max(ratios)})
        found = TEXT.claims["baselines"].listed("system", rows, " and ")
        yield TEXT.claim("baselines", [_of_trace(table, names) for table in tables], found=found)


def _rank_map(made: Sequence[TraceTable]) -> Iterator[Claim]:
    """Separate Titan's choice of machines from its map: best fit with and without the map, on traffic."""
    part = TEXT.claims["rank_map"].part
    tables = _having(made, 5, "instant", *MAP)
    if tables:
        explained = all(table.ratios["best-fit-mapped"].mean <= 1 + ALIKE for table in tables)
        nothing = [table.trace.label for table in tables if table.ratios["best-fit"].mean <= 1]
        text = part("explained" if explained else "unexplained")
        text += part("saves", where=", ".join(nothing)) if nothing else ""
        readings = [reading for table in tables for reading in (_of_trace(table, MAP), *_near(table))]
        yield TEXT.claim("rank_map", readings, text=text)


def _near(table: TraceTable) -> Iterator[Reading]:
    """Yield the same with the other order of halving-doubling, if that was run."""
    near, figure = READINGS["gloo"], table.figure
    setup = Setup(table.trace.key, table.network, near.key)
    if all(table.replays.of(setup, policy) for policy in MAP):
        values = {policy: table.replays.value(setup, policy, figure.metric) for policy in MAP}
        ours = {name: scaled(values[policy], figure.factor) for policy, name in MAP.items()}
        yield Reading(f"{table.trace.label}, {near.name}", ours)
