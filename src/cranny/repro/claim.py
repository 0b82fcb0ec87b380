"""A claim of a paper and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cranny.repro.page import Told

Holds = Literal["holds", "holds in part", "does not hold", "beyond the paper", "not tested"]
# Outcomes of claims that are judged, and the colour of the tag that says so.
KINDS = {"holds": "good", "holds in part": "part", "does not hold": "bad"}


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim, whether it holds, and the numbers that say so."""

    title: str
    holds: Holds
    text: str

    def told(self) -> Told:
        """Return the claim for the page."""
        return Told(self.title, self.holds, KINDS.get(self.holds, "other"), self.text)


def sum_up(paper: str, claims: Sequence[Claim]) -> str:
    """Sum claims up in one sentence."""
    judged = [each.holds for each in claims if each.holds in KINDS]
    counts = ", ".join(f"{word} {judged.count(word)}" for word in KINDS if word in judged)
    return f"{len(judged)} claims of the paper ({paper}) are tested here: {counts}."
