"""The policies that a page names as the best other ones, in each world and part.

A new form of a policy is judged against these in an hour; to replay all policies anew takes many.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.regret.replays import PARTS, Found, RegretCell, plan
from benchmarks.regret.world import Contender, World, headline
from cranny.model.errors import InputError
from cranny.policies import TABLE

TITLE = "**Regret: the best other policy**"
NamedBest = Mapping[tuple[str, str], Sequence[Contender]]  # by world and part


def named_best(page: Path) -> NamedBest:
    """Read the table of the best other policies, as `--rivals` writes it."""
    _, found, rest = page.read_text(encoding="utf-8").partition(TITLE)
    lines = rest.strip().split("\n\n")[0].splitlines()[2:]
    if not found or not lines:
        raise InputError(f"{page}: no table {TITLE} to read, as --rivals --page writes it")
    named: dict[tuple[str, str], list[Contender]] = {}
    for line in lines:
        world, seeds, *entries = [cell.strip() for cell in line.strip("|").split("|")]
        words = [entry.split()[-1] for cell in entries for entry in cell.split(",") if entry.strip()]
        contenders = map(Contender.read, dict.fromkeys(words))
        named[world, seeds.split()[-1]] = [each for each in contenders if each.policy in TABLE]
    return named


def replay_best(
    world: World,
    count: int,
    own: Contender,
    named: NamedBest,
    replayed: Callable[[Sequence[RegretCell]], Found],
    parts: Sequence[str] = PARTS,
) -> Found:
    """Return what the judged policy found in a world, those named, and the system of the world's paper."""
    found: Found = {}
    for part in parts:
        best = named.get((world.key, part))
        if best is not None:
            system = [Contender(name) for name in (headline(world)[0],) if name]
            found |= replayed(plan([world], list(dict.fromkeys([own, *best, *system])), count, [part]))
    return found
