"""Reading YAML or JSON that strangers wrote: its fields, checked, and the line of each for errors.

JSON is YAML, so one reader does for both. Aliases are refused, since a few hundred bytes of them can stand
for gigabytes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cranny.model.errors import InputError, at, unknown

MAX_BYTES = 16 * 1024 * 1024
MAX_NESTING = 100
MAX_NAME = 100

# libyaml reads a large file tenfold faster; both give the same nodes.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
# YAML 1.1 wants a dot in 1.0e3; JSON does not.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")

Step = str | int
Value = dict[str, "Value"] | list["Value"] | str | int | float | bool | None


class Document:
    """The values of a file, and where in it each of them stands."""

    def __init__(
        self,
        path: Path,
        text_fields: frozenset[str],
        text_below: frozenset[str] = frozenset(),
        text_entries: frozenset[str] = frozenset(),
    ) -> None:
        self.path = path
        self._text_entries = text_entries  # lists of nothing but text
        self._text_fields = text_fields  # `name: 0012` is the text 0012, not a number
        self._text_below = text_below  # fields of the file that hold nothing but text, however deep
        text = read_text(path)
        if text.lstrip().startswith(("{", "[")):
            text = text.replace("\t", " ")  # JSON may be indented by tabs, YAML may not
        self._root = _compose(path, text)
        self.value = self._convert(self._root, ())

    def line(self, steps: Sequence[Step]) -> int:
        """Return the line of a value, or of the nearest that holds it if it is missing."""
        node = self._root
        line = node.start_mark.line
        for step in steps:
            found: list[tuple[yaml.Node, yaml.Node]] = []  # what names the value, and the value
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                found = [(node.value[step], node.value[step])]
            elif isinstance(node, yaml.MappingNode):
                found = [(key, value) for key, value in node.value if key.value == step]
            if not found:
                break
            line, node = found[-1][0].start_mark.line, found[-1][1]
        return line + 1

    def error(self, steps: Sequence[Step], problem: str, line: int | None = None) -> InputError:
        """Make the error that says what is wrong with a value."""
        where = at(self.path, line or self.line(steps), dotted(steps) or None)
        return InputError(f"{where}: {problem}")

    def _convert(self, node: yaml.Node, steps: tuple[Step, ...]) -> Value:
        """Turn a node into plain values."""
        if isinstance(node, yaml.SequenceNode):
            return [self._convert(item, (*steps, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, steps)
        fields: dict[str, Value] = {}
        lines: dict[str, int] = {}
        for key, item in node.value:
            line = key.start_mark.line + 1
            where = at(self.path, line, dotted(steps) or None)
            if not isinstance(key, yaml.ScalarNode):
                raise InputError(f"{where}: the name of a field must be plain text")
            if key.value in fields:
                first = lines[key.value]
                raise InputError(f"{where}: field {key.value!r} is given twice, first on line {first}")
            lines[key.value] = line
            fields[key.value] = self._convert(item, (*steps, key.value))
        return fields

    def _scalar(self, node: yaml.ScalarNode, steps: tuple[Step, ...]) -> Value:
        """Turn a scalar into a number, a truth value, nothing or text."""
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        if kind == "null":
            return None
        entry = len(steps) > 1 and isinstance(steps[-1], int) and steps[-2] in self._text_entries
        if entry or (steps and (steps[-1] in self._text_fields or steps[0] in self._text_below)):
            return text
        if kind in {"str", "timestamp"}:
            plain = not node.style and kind == "str"
            return float(text) if plain and _EXPONENT.fullmatch(text) else text
        if kind not in _SCALARS:
            raise self.error(steps, f"tag {node.tag!r} is not allowed here")
        try:
            return _SCALARS[kind](node)
        except ValueError:
            raise self.error(steps, f"not a number that can be read: {shown(text)}") from None


def dotted(steps: Sequence[Step]) -> str:
    """Write the way to a value as people do: racks[0].machines[1].gpus."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def shown(value: object) -> str:
    """Show a value in an error message, cut short if it is long."""
    if isinstance(value, dict):
        return "a mapping of fields"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_text(path: Path, most_bytes: int = MAX_BYTES) -> str:
    """Read a file of moderate size as text."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{at(path)}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{at(path)}: is a folder, not a file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{at(path)}: cannot be read: {reason}") from None
    if len(content) > most_bytes:
        raise InputError(f"{at(path)}: is larger than {most_bytes // 1024**2} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{at(path)}: is not a text file in UTF-8") from None


def _compose(path: Path, text: str) -> yaml.Node:
    """Parse the text into nodes, once it is known to be harmless."""
    try:
        _guard(path, text)
        root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = (error.context, error.problem)
        what = " ".join(" ".join(part for part in parts if part).split())
        where = at(path, mark.line + 1 if mark else None)
        raise InputError(f"{where}: cannot be read as YAML or JSON: {what}") from None
    except yaml.YAMLError as error:
        what = " ".join(str(error).split())
        raise InputError(f"{at(path)}: is not a text file: {what}") from None
    if root is None:
        raise InputError(f"{at(path)}: is empty")
    return root


def _guard(path: Path, text: str) -> None:
    """Refuse what could make a small file large or a parser dizzy, without building anything."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING or isinstance(event, yaml.AliasEvent):
            deep = f"is nested more than {MAX_NESTING} levels deep"
            problem = deep if depth > MAX_NESTING else f"alias *{event.anchor} is not supported; write it out"
            raise InputError(f"{at(path, event.start_mark.line + 1 if event.start_mark else None)}: {problem}")


_constructor = yaml.constructor.SafeConstructor()
_SCALARS = {
    "int": _constructor.construct_yaml_int,
    "float": _constructor.construct_yaml_float,
    "bool": _constructor.construct_yaml_bool,
}


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError
    return text


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Fields(BaseModel):
    """A mapping in a file: unknown fields are refused, and text is not taken for a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


Checked = TypeVar("Checked", bound=Fields)


def checked(
    document: Document, kind: type[Checked], below: Mapping[str, type[Fields]], must_be: Mapping[str, str]
) -> Checked:
    """Return the fields of a document, or say in one line what is wrong with them, and where.

    `below` are the fields of what stands under a name; `must_be` says in words what a value must be, with `name[]`
    for an entry of a list.
    """
    try:
        return kind.model_validate(document.value)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # The first in the file; unknown fields explain missing ones.
    problem = min(problems, key=lambda found: (found["type"] != "extra_forbidden", document.line(found["loc"])))
    steps: tuple[Step, ...] = problem["loc"]
    last = steps[-1] if steps else None
    if problem["type"] == "missing":
        raise document.error(steps, "is missing")
    owners = [step for step in steps[:-1] if isinstance(step, str)]
    if problem["type"] == "extra_forbidden":
        known = below[owners[-1]] if owners else kind
        what = unknown("field", str(last), known.model_fields)
        raise document.error(steps[:-1], str(what), document.line(steps))
    if isinstance(last, str):
        wanted = must_be.get(last, "a positive number")
    else:
        wanted = must_be.get(f"{owners[-1]}[]" if owners else "", "a mapping of fields")
    raise document.error(steps, f"must be {wanted}, not {shown(problem['input'])}")
