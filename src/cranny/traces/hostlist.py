"""Lists of machines as Slurm writes them: `node[001-004,007],login1` stands for six machines."""

import re
from collections.abc import Iterator
from itertools import product

from cranny.model.errors import InputError

MOST_MACHINES = 65_536  # that one list may stand for; the largest clusters have fewer
_MOST_CHARACTERS = 1_000_000
_SHOWN = 60  # characters of a list that an error shows
_NAME = re.compile(r"(?:[^\s,\[\]]|\[[0-9,-]*\])+")  # one name, with numbers in brackets
_NUMBERS = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def expand(text: str, most: int = MOST_MACHINES) -> list[str]:
    """Return the machines of a list, in its order; refuse one that is malformed or stands for more than `most`."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"a list of machines of {len(text):,} characters; at most {_MOST_CHARACTERS:,} are read")
    machines: list[str] = []
    at = 0
    while at < len(text):
        name = _NAME.match(text, at)
        if name is None or (name.end() < len(text) and text[name.end()] != ","):
            raise InputError(f"not a list of machines such as node[001-004],login1: {_shown(text)}")
        machines += _expanded(name[0], text, most - len(machines))
        at = name.end() + 1
    if not machines or text.endswith(","):
        raise InputError(f"not a list of machines such as node[001-004],login1: {_shown(text)}")
    return machines


def _expanded(name: str, text: str, most: int) -> list[str]:
    """Write out the numbers in the brackets of one name; those on the right change first."""
    if "[" not in name:
        words: list[str] = [name]
    else:
        parts = _NUMBERS.split(name)  # plain text and numbers in turn
        choices = [list(_numbers(part, text, most)) if place % 2 else [part] for place, part in enumerate(parts)]
        total = 1
        for each in choices:
            total *= len(each)
        if total > most:
            raise _too_many(text)
        words = ["".join(chosen) for chosen in product(*choices)]
    if len(words) > most:
        raise _too_many(text)
    return words


def _numbers(part: str, text: str, most: int) -> Iterator[str]:
    """Yield the numbers of a bracket such as 001-004,007, with zeros in front as its first number has them."""
    left = most
    for piece in part.split(","):
        found = _RANGE.fullmatch(piece)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise InputError(f"not a range of numbers such as 001-004: {_shown(piece)} in {_shown(text)}")
        first, last = int(found[1]), int(found[2] or found[1])
        left -= last - first + 1
        if left < 0:
            raise _too_many(text)
        width = len(found[1])
        yield from (f"{number:0{width}d}" for number in range(first, last + 1))


def _too_many(text: str) -> InputError:
    return InputError(f"stands for more than {MOST_MACHINES:,} machines: {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else repr(text[:_SHOWN]) + "..."
