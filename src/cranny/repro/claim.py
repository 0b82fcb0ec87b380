"""A claim of a paper and the rules of its verdict: the order of the schemes, their ratios, and parts that hold.

A paper's absolute numbers depend on models, prices and machines that it does not give. What can be compared is
which scheme is ahead of which (the order) and by how much (the ratio of each scheme's value to that of the paper's
own scheme).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from cranny.model.validate import counted, percent
from cranny.report.confidence import Estimate

Holds = Literal[
    "holds",
    "holds in part",
    "depends on the reading",
    "does not hold",
    "beyond the paper",
    "not tested",
    "no verdict",
]
# Verdicts on claims that are tested, and the style of the tag that shows them on the page.
TESTED = {"holds": "good", "holds in part": "part", "depends on the reading": "part", "does not hold": "bad"}
CLOSE = 0.10
NEAR = 0.25
ALIKE = 0.05  # values of a paper that differ by less make no order: it calls them similar itself

Pair = tuple[str, str]  # of two schemes; the first has the lower value


Stated = float | tuple[float, float]  # a number of the paper, or the least and the most that it gives


@dataclass(frozen=True, slots=True)
class Reading:
    """A claim under one reading of what the paper leaves open: our values, and which parts of the claim hold."""

    name: str
    ours: Mapping[str, Estimate]  # by what they are of: a scheme, a setting
    holds: Holds = "no verdict"
    parts: Sequence[bool] = ()

    @property
    def verdict(self) -> str:
        """Say what became of the claim; of one that holds in part, how many of its parts do."""
        if self.holds == "holds in part" and self.parts:
            return f"{self.holds}: {sum(self.parts)} of {len(self.parts)}"
        return self.holds


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, or a question of ours: what the paper states, our values under each reading, and the verdict."""

    title: str
    holds: Holds
    text: str  # at most two sentences; numbers are in the picture and its table
    stated: str = ""  # what the text of the paper says
    paper: Mapping[str, Stated] = field(default_factory=dict)  # its numbers, by what they are of
    readings: Sequence[Reading] = ()  # ours first
    unit: str = ""
    rule_made_after: str = ""  # how it is judged, where we decided that after we had seen results

    @property
    def labels(self) -> list[str]:
        """Return what the values are of, in the order of ours if these have all of the paper's."""
        ours = dict.fromkeys(label for each in self.readings for label in each.ours)
        return list(ours if self.paper.keys() <= ours.keys() else {**dict.fromkeys(self.paper), **ours})

    @property
    def verdict(self) -> str:
        """Say what became of the claim, and under which reading if that matters."""
        if self.holds == "depends on the reading":
            return "; ".join(f"{each.verdict} under: {each.name}" for each in self.readings)
        return self.readings[0].verdict if self.readings and self.holds in TESTED else self.holds

    def without_verdict(self) -> "Claim":
        """Return the claim as a run shows it that is too short to judge anything: its values alone."""
        readings = [replace(each, holds="no verdict", parts=()) for each in self.readings]
        return replace(self, holds="no verdict", text="", readings=readings) if self.holds in TESTED else self


@dataclass(frozen=True, slots=True)
class OpenChoice:
    """Something that a paper leaves open, and what comes out under each reading of it, ours first."""

    question: str
    readings: Sequence[Reading]


def all_or_some(parts: Iterable[bool]) -> Holds:
    """Return the verdict on a claim of which all, some or none of the parts hold."""
    found = list(parts)
    return "holds" if all(found) else "holds in part" if any(found) else "does not hold"


def graded(first: bool, *others: bool) -> Holds:  # noqa: FBT001 - parts of a claim, as many as there are
    """Return the verdict on a claim that does not hold without its first part, and in part without the others."""
    return "does not hold" if not first else "holds" if all(others) else "holds in part"


def agreed(readings: Sequence[Reading]) -> Holds:
    """Return the verdict that all readings of a claim lead to, or that it depends on them.

    Where no reading has one, the paper claims nothing.
    """
    found = {each.holds for each in readings} - {"no verdict"}
    if not found:
        return "beyond the paper"
    return found.pop() if len(found) == 1 else "depends on the reading"


def sum_up(paper: str, claims: Sequence[Claim]) -> str:
    """Sum claims up in one sentence."""
    tested = [each.holds for each in claims if each.holds in TESTED]
    counts = []
    for word in [word for word in TESTED if word in tested]:
        several = word.replace("holds", "hold").replace("does", "do").replace("depends", "depend")
        counts.append(f"{tested.count(word)} {word if tested.count(word) == 1 else several}")
    text = (
        f"{counted(len(tested), 'claim')} of the paper ({paper}) {'is' if len(tested) == 1 else 'are'} tested here"
    )
    return f"{text}: {', '.join(counts)}." if counts else f"{text}."


class Ratio(NamedTuple):
    """A scheme's value over that of the paper's own scheme, in the paper and here."""

    paper: float
    ours: float

    @property
    def off(self) -> float:
        """Return how far apart the two are, as a share: 0.1 if one is 1.1 times the other."""
        if not self.paper > 0 or not self.ours > 0:
            return math.inf
        return max(self.ours / self.paper, self.paper / self.ours) - 1

    @property
    def words(self) -> str:
        """Say how near the two are."""
        for limit in (CLOSE, NEAR):
            if self.off <= limit:
                return f"within {percent(limit)}"
        return f"off {1 + self.off:,.2g}x" if math.isfinite(self.off) else "not comparable"


def near(paper: float, ours: float) -> bool:
    """Say whether a value is near the paper's."""
    return Ratio(paper, ours).off <= NEAR


class Verdict(NamedTuple):
    """What became of a paper's figure: the pairs that we find in its order or swapped, and its ratios."""

    kept: tuple[Pair, ...]
    swapped: tuple[Pair, ...]
    ratios: Mapping[str, Ratio]

    @property
    def ratios_hold(self) -> bool | None:
        """Say whether all ratios are near the paper's; None if the paper gives none."""
        return all(ratio.off <= NEAR for ratio in self.ratios.values()) if self.ratios else None

    @property
    def word(self) -> str:
        """Say in a word or two what holds."""
        if not self.kept and not self.swapped:
            return "no claim"
        if self.swapped:
            return "order holds in part" if self.kept else "order does not hold"
        return {True: "order and ratios hold", False: "order holds, ratios do not", None: "order holds"}[
            self.ratios_hold
        ]

    @property
    def short(self) -> str:
        """Say the same in a word for a table."""
        if self.confirms:
            return "holds"
        if not self.kept:
            return "no" if self.swapped else "no claim"
        return "in part" if self.swapped else "order only"

    @property
    def parts(self) -> list[bool]:
        """Say whether each pair is in the paper's order, and each ratio near the paper's."""
        pairs = [True] * len(self.kept) + [False] * len(self.swapped)
        return pairs + [ratio.off <= NEAR for ratio in self.ratios.values()]

    @property
    def confirms(self) -> bool:
        """Say whether nothing speaks against the paper."""
        return bool(self.kept) and not self.swapped and self.ratios_hold is not False

    @property
    def holds(self) -> Holds:
        """Return the verdict on the claim: it holds in part if some pairs do, or the order without the ratios."""
        return "holds" if self.confirms else "holds in part" if self.kept else "does not hold"


def judge(
    ours: Mapping[str, float], paper: Mapping[str, float], stated: Iterable[Pair] = (), base: str = "titan"
) -> Verdict:
    """Compare our values with a paper's values, and with the order that it states in words.

    Schemes that we have no value for are skipped, and so are pairs that are nearly alike in the paper, unless
    they are in the other order here and not alike: that reversal is swapped. Equal values of ours keep no order.
    """
    known = {name: value for name, value in paper.items() if name in ours}
    names = sorted(known, key=lambda name: known[name])
    ordered = [
        (low, high)
        for at, low in enumerate(names)
        for high in names[at + 1 :]
        if known[high] > known[low] * (1 + ALIKE)
        or (known[high] > known[low] and ours[low] > ours[high] * (1 + ALIKE))
    ]
    pairs = list(dict.fromkeys([*ordered, *(pair for pair in stated if pair[0] in ours and pair[1] in ours)]))
    kept = tuple(pair for pair in pairs if ours[pair[0]] < ours[pair[1]])
    ratios = {}
    if known.get(base) and ours.get(base):
        ratios = {
            name: Ratio(value / known[base], ours[name] / ours[base])
            for name, value in known.items()
            if name != base
        }
    return Verdict(kept, tuple(pair for pair in pairs if pair not in kept), ratios)
