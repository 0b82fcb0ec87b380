"""Lists of machine names as Slurm writes them: `node[001-004,007],login1` stands for six names."""

import itertools
import re
from collections.abc import Sequence

from cranny.model.errors import InputError
from cranny.model.topology_spec import MAX_MACHINES

_TOKEN = re.compile(r"(?P<text>[^\s,\[\]]+)|\[(?P<numbers>[^\s\[\]]*)\]|(?P<comma>,)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)
_SHOWN = 60  # characters of a wrong list that an error shows


def expand(text: str, most: int = MAX_MACHINES) -> tuple[str, ...]:
    """Return the names that a host list stands for, in its order; an empty list stands for none.

    A name may have several brackets, `rack[1-2]n[0-3]`, of which the last counts fastest. Numbers are as wide as
    the first of their range is: `[08-10]` gives 08, 09, 10. A list of more than `most` names is refused.
    """
    text = text.strip()
    if "[" not in text and "]" not in text:
        return _checked_count(_plain(text), most)
    names: list[str] = []
    parts: list[list[str]] = []  # of one name: the texts that can stand at each place
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise _wrong(text, f"cannot be read from {text[position : position + _SHOWN]!r} on")
        position = token.end()
        if token["text"] is not None:
            parts.append([token["text"]])
        elif token["comma"] is None:
            parts.append(_numbers(text, token["numbers"], most))
        else:
            names += _joined(text, parts, most - len(names))
            parts = []
    names += _joined(text, parts, most - len(names))
    return tuple(names)


def fold(names: Sequence[str]) -> str:
    """Return the host list that stands for names, in their order; `expand` gives them back."""
    groups: list[tuple[str, str, list[tuple[str, str]]]] = []  # text before and after, ranges of numbers
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if re.search(r"[\s,\[\]]", name) or not name:
            raise InputError(f"machine name {name!r} cannot stand in a host list")
        if found is None:
            groups.append((name, "", []))
            continue
        before, number, after = found[1], found[2], found[3]
        if not groups or groups[-1][:2] != (before, after) or not groups[-1][2]:
            groups.append((before, after, [(number, number)]))
            continue
        ranges = groups[-1][2]
        first, last = ranges[-1]
        if number == str(int(last) + 1).zfill(len(first)):
            ranges[-1] = (first, number)
        else:
            ranges.append((number, number))
    return ",".join(_folded(*group) for group in groups)


def _folded(before: str, after: str, ranges: Sequence[tuple[str, str]]) -> str:
    """Write names that differ in a number."""
    numbers = [first if first == last else f"{first}-{last}" for first, last in ranges]
    if not numbers:
        return before
    single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{before}{numbers[0]}{after}" if single else f"{before}[{','.join(numbers)}]{after}"


def _plain(text: str) -> tuple[str, ...]:
    """Return the names of a list without brackets."""
    names = tuple(text.split(",")) if text else ()
    if not all(names) or any(character.isspace() for character in text):
        raise _wrong(text, "has an empty name or a space in it")
    return names


def _numbers(text: str, inside: str, most: int) -> list[str]:
    """Return the numbers that a bracket stands for."""
    numbers: list[str] = []
    for part in inside.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise _wrong(text, f"{part[:_SHOWN]!r} is neither a number nor a range such as 1-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise _wrong(text, f"the range {part} ends before it begins")
        if last - first >= most - len(numbers):
            raise _too_many(text, most)
        numbers += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
    return numbers


def _joined(text: str, parts: Sequence[Sequence[str]], most: int) -> list[str]:
    """Return the names that the parts of one give, the last of them counting fastest."""
    if not parts:
        raise _wrong(text, "has an empty name in it")
    count = 1
    for part in parts:
        count *= len(part)
        if count > most:
            raise _too_many(text, most)
    return ["".join(choice) for choice in itertools.product(*parts)]


def _checked_count(names: tuple[str, ...], most: int) -> tuple[str, ...]:
    """Return names unless there are too many."""
    if len(names) > most:
        raise _too_many(",".join(names[:3]), most)
    return names


def _too_many(text: str, most: int) -> InputError:
    return _wrong(text, f"stands for more than {most} machines")


def _wrong(text: str, problem: str) -> InputError:
    """Make the error that says what is wrong with a host list."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return InputError(f"host list {shown!r}: {problem}")
