"""A claim of a paper and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cranny.model.validate import counted
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
    counts = [f"{judged.count(word)} {_of(judged.count(word), word)}" for word in KINDS if word in judged]
    tested = (
        f"{counted(len(judged), 'claim')} of the paper ({paper}) {'is' if len(judged) == 1 else 'are'} tested here"
    )
    return f"{tested}: {', '.join(counts)}." if counts else f"{tested}."


def _of(number: int, word: str) -> str:
    """Return the verb of an outcome for one claim or for several."""
    return word if number == 1 else word.replace("holds", "hold").replace("does", "do")
