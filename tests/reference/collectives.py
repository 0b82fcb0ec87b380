"""Data flow of the collectives, carried out on symbols: which contributions each piece of the result holds.

A rank's vector is cut into chunks; a chunk is the set of ranks whose gradients are summed in it. Summing two
sets that overlap would count a gradient twice, so that is an error, save when the incoming sum already holds
all of ours and simply replaces it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from cranny.model.collective import Pattern, Phase

Vector = list[frozenset[int]]


class WrongFlowError(Exception):
    """A collective does not compute what it should."""


@dataclass
class Flow:
    """The vectors of all ranks while a collective runs."""

    ranks: int
    chunks: int
    vectors: list[Vector] = field(init=False)

    def __post_init__(self) -> None:
        self.vectors = [[frozenset({rank})] * self.chunks for rank in range(self.ranks)]

    def send(self, messages: Iterable[tuple[int, int, range]]) -> None:
        """Let ranks send chunks at the same time: all are read before any is written."""
        sent = [(to, {c: self.vectors[source][c] for c in chunks}) for source, to, chunks in messages]
        for to, pieces in sent:
            for chunk, incoming in pieces.items():
                own = self.vectors[to][chunk]
                if own <= incoming:
                    self.vectors[to][chunk] = incoming
                elif own & incoming:
                    raise WrongFlowError(f"rank {to} would count {sorted(own & incoming)} twice in chunk {chunk}")
                else:
                    self.vectors[to][chunk] = own | incoming

    def done(self) -> bool:
        """Say whether every rank has every contribution in every chunk."""
        return all(piece == frozenset(range(self.ranks)) for vector in self.vectors for piece in vector)


def directed(phase: Phase) -> list[tuple[int, int]]:
    """Return who sends to whom, with exchanges as two messages."""
    back = [(b, a) for a, b in phase.pairs] if phase.exchange else []
    return [*phase.pairs, *back]


def run_ring(pattern: Pattern) -> Flow:
    """In step t of the reduce-scatter rank i passes on chunk i-t; in the all-gather chunk i+1-t."""
    n = pattern.ranks
    flow = Flow(n, n)
    steps = [phase for phase in pattern.phases for _ in range(phase.times)]
    for step, phase in enumerate(steps):
        _demand_share(phase, 1, n)
        messages = []
        for source, to in directed(phase):
            chunk = (source - step) % n if step < n - 1 else (source + 1 - (step - (n - 1))) % n
            messages.append((source, to, range(chunk, chunk + 1)))
        flow.send(messages)
    return flow


def run_halving_doubling(pattern: Pattern, chunks: int) -> Flow:
    """Exchanges first halve what a rank answers for and then double it; other phases move what both answer for."""
    flow = Flow(pattern.ranks, chunks)
    share_of = {rank: range(chunks) for rank in range(pattern.ranks)}
    exchanges = sum(phase.exchange for phase in pattern.phases)
    met = 0
    for phase in pattern.phases:
        if not phase.exchange:
            both = [(a, b, _overlap(share_of[a], share_of[b])) for a, b in phase.pairs]
            for _, _, moved in both:
                _demand_share(phase, len(moved), chunks)
            flow.send(both)
            continue
        messages: list[tuple[int, int, range]] = []
        after: dict[int, range] = {}
        for a, b in phase.pairs:
            mine, yours = share_of[a], share_of[b]
            if met < exchanges // 2:  # a keeps the lower half, b the upper
                if mine != yours:
                    raise WrongFlowError(f"ranks {a} and {b} answer for different chunks")
                middle = mine.start + len(mine) // 2
                after[a], after[b] = range(mine.start, middle), range(middle, mine.stop)
                messages += [(a, b, after[b]), (b, a, after[a])]
            else:
                after[a] = after[b] = range(min(mine.start, yours.start), max(mine.stop, yours.stop))
                messages += [(a, b, mine), (b, a, yours)]
        for _, _, moved in messages:
            _demand_share(phase, len(moved), chunks)
        flow.send(messages)
        share_of.update(after)
        met += 1
    return flow


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def run_whole(pattern: Pattern) -> Flow:
    """Every message is a whole vector: trees and parameter servers."""
    flow = Flow(pattern.ranks, 1)
    for phase in pattern.phases:
        _demand_share(phase, 1, 1)
        flow.send((a, b, range(1)) for a, b in directed(phase))
    return flow


def sent_by(pattern: Pattern) -> list[float]:
    """Return the share of K that each rank sends."""
    total = [0.0] * pattern.ranks
    for phase in pattern.phases:
        for source, _ in directed(phase):
            total[source] += phase.share * phase.times
    return total


def _demand_share(phase: Phase, moved: int, chunks: int) -> None:
    if abs(phase.share - moved / chunks) > 1e-12:
        raise WrongFlowError(f"a phase says {phase.share} of K, but {moved} of {chunks} chunks move")
