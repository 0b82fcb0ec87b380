"""Screening: a policy that is far behind with the first seeds of a world is not replayed with the others.

With the first seeds of a part all policies are replayed. One goes on if in some judged metric it is near the best
of the other policies, the judged one left aside: how far that is ahead must not decide which rivals it is compared
with. So do the judged policy and the system of the world's paper.
"""

from collections.abc import Callable, Sequence

from benchmarks.regret.judgement import Row, judge, rows
from benchmarks.regret.replays import PARTS, Found, RegretCell, part_of, plan
from benchmarks.regret.world import Contender, World, headline

SCREENED = 2  # seeds of each part, with which all policies are replayed
NEAR = 1.15  # of the best other policy, at most, in one metric at least
Replayed = Callable[[Sequence[RegretCell]], Found]


def replay_world(
    world: World, count: int, own: Contender, replayed: Replayed, parts: Sequence[str] = PARTS
) -> Found:
    """Return what all policies found with the first seeds of a world, and those that are near with the others."""
    found = replayed(plan([world], None, min(count, SCREENED), parts))
    kept = {row.part: near(row, own) for row in rows(found)}
    others = [
        cell
        for cell in plan([world], None, count, parts)
        if cell not in found and cell.contender in kept.get(part_of(cell), ())
    ]
    return found | replayed(others)


def near(row: Row, own: Contender) -> set[Contender]:
    """Return the policies of a row that go on."""
    rivals = row._replace(
        measures={each: values for each, values in row.measures.items() if each.policy != own.policy}
    )
    close = {rival for rival in rivals.measures if any(cell.value <= NEAR for cell in judge(rivals, rival))}
    best = {cell.best for cell in judge(row, own)}  # also where there is only one
    always = (own.policy, headline(row.world)[0])
    return close | {each for each in row.measures if each.label in best or each.policy in always}
