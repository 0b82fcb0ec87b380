"""A paper as data: its names, claims, tables and sentences in a YAML file beside the code that computes.

Texts are templates of `str.format`; behind the colon of a field may also be the name of a number format of ours.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from string import Formatter
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict

from cranny.model.validate import percent
from cranny.model.yaml_file import Document
from cranny.report.text_table import TextTable
from cranny.repro.claim import Claim, Holds, Reading, Stated, agreed, all_or_some
from cranny.repro.number_format import extent, listed, plain, times

FORMATS: Mapping[str, Callable[[Any], str]] = {
    each.__name__: each for each in (plain, times, percent, extent, listed)
}


class _Template(Formatter):
    """Fills a text in, with number formats by their names."""

    def format_field(self, value: Any, format_spec: str) -> str:
        named = FORMATS.get(format_spec)
        return named(value) if named else format(value, format_spec)


def fill(template: str, /, **values: object) -> str:
    """Return a text with its values."""
    return _Template().vformat(template, (), values)


def _parsed(text: str) -> str:
    """Refuse a text that is no template: a value of a field must have a name."""
    if any(name is not None and not name.isidentifier() for _, name, _, _ in Formatter().parse(text)):
        raise ValueError(f"a field without a name: {text!r}")
    return text


Number = int | float  # as the file has it
Text = Annotated[str, AfterValidator(_parsed)]


class PaperModel(BaseModel):
    """A part of a paper's file; a field that it does not have is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# Which values: of a figure and a measure, in one setting, several or all of them (*), for one scheme or several.
Where = tuple[str, str, str | tuple[str, ...], str | tuple[str, ...]]
Read = Callable[[str, str, str | tuple[str, ...], str | tuple[str, ...]], list[float]]


class Check(PaperModel):
    """A condition on a value of a claim, or on each of several; bounds are numbers, or names of some."""

    value: str
    above: Number | str | None = None
    least: Number | str | None = None
    most: Number | str | None = None
    near: Number | str | None = None
    by: Number = 0  # by which a value may miss a bound
    each: bool = False  # each of the values is a part of the claim that may hold
    falls: bool = False

    def parts(self, known: Mapping[str, Any]) -> Iterator[bool]:
        """Yield whether the parts hold."""
        found = known[self.value]
        values = found if isinstance(found, list) else [found]
        above, least, most, near = (
            known[bound] if isinstance(bound, str) else bound
            for bound in (self.above, self.least, self.most, self.near)
        )
        held = [
            (above is None or value > above)
            and (least is None or value >= least - self.by)
            and (most is None or value <= most + self.by)
            and (near is None or abs(value - near) <= self.by)
            for value in values
        ]
        falling = not self.falls or values == sorted(values, reverse=True)
        yield from held if self.each else [falling and all(held)]


class ClaimText(PaperModel):
    """A claim of the paper, or a question of ours: its title, what we say of it, and the paper's numbers."""

    title: Text
    paper: Text = ""  # what its text states
    text: Text = "{text}"  # at most two sentences on what we find
    unit: Text = ""  # of the values in the picture
    bars: Mapping[str, Stated] = {}  # the paper's numbers in it, by what they are of; two are a range
    rule_made_after: str = ""  # how the claim is judged, where we decided that after we had seen results
    parts: Mapping[str, Text] = {}  # sentences that are repeated, or not always said
    numbers: Mapping[str, Number] = {}
    values: Mapping[str, Where] = {}  # of ours
    holds: tuple[Check, ...] = ()

    def part(self, name: str, /, **values: object) -> str:
        """Return one of the sentences with its values."""
        return fill(self.parts[name], **self.numbers, **values)

    def listed(self, name: str, rows: Iterable[Mapping[str, object]], join: str = "; ") -> str:
        """Return one of the sentences for each of several rows of values."""
        return join.join(self.part(name, **row) for row in rows)


class TableText(PaperModel):
    """The title of a table, the note below it and the heads of its columns."""

    title: Text
    note: Text
    head: tuple[str, ...]


class Paper(PaperModel):
    """What the files of all papers have; those of a paper's own are in its subclass."""

    name: str  # of the files
    paper: str
    title: str
    names: Mapping[str, str]  # the paper's, by ours
    quoted_names: bool = False  # since systems of these names are others
    facts: Mapping[str, Text]  # how this was done
    claims: Mapping[str, ClaimText]
    tables: Mapping[str, TableText] = {}
    untested: str

    def claim(
        self,
        key: str,
        found: Holds | Sequence[Reading] = "beyond the paper",
        bars: Mapping[str, Stated] | None = None,
        /,
        **values: object,
    ) -> Claim:
        """Return what became of a claim, or what we find on a question that the paper does not ask.

        What was found are readings, or a verdict alone. Without `bars`, the paper's numbers are those of the file.
        """
        claim = self.claims[key]
        readings = () if isinstance(found, str) else found
        texts = (claim.title, claim.text, claim.paper, claim.unit)
        title, text, stated, unit = (fill(part, **{**claim.numbers, **values}) for part in texts)
        paper = claim.bars if bars is None else bars
        holds = found if isinstance(found, str) else agreed(found)
        return Claim(title, holds, text, stated, paper, readings, unit, claim.rule_made_after)

    def values(self, key: str, read: Read) -> dict[str, Any]:
        """Return our values of a claim, each a number, or a list where it is of several settings or schemes."""
        found: dict[str, Any] = {}
        for name, where in self.claims[key].values.items():
            values = read(*where)
            single = where[2] != "*" and all(isinstance(each, str) for each in where)
            found[name] = values[0] if single else values
        return found

    def judge(self, key: str, read: Read) -> Claim:
        """Return what became of a claim by the values and checks of the file."""
        values = self.values(key, read)
        known = {**self.claims[key].numbers, **values}
        parts = [part for check in self.claims[key].holds for part in check.parts(known)]
        return self.claim(key, all_or_some(parts), **values)

    def say(self, *keys: str, **values: object) -> list[str]:
        """Return sentences on how this was done, with the values that they need."""
        return [fill(self.facts[key], **values) for key in keys]

    def table(self, key: str, rows: list[list[str]], /, *heads: str, **values: object) -> TextTable:
        """Return a table of some rows; `heads` come behind those of the file."""
        table = self.tables[key]
        return TextTable(fill(table.title, **values), fill(table.note, **values), (*table.head, *heads), rows)

    def label(self, scheme: str) -> str:
        """Return the name of a policy, with the paper's name in brackets if that is another."""
        name = self.names.get(scheme)
        quoted = f'"{name}"' if self.quoted_names else name
        return f"{scheme} ({quoted})" if name and name.lower() != scheme else scheme

    @property
    def not_tested(self) -> Claim:
        """Return what a simulation cannot show."""
        return Claim("What is not tested", "not tested", self.untested)


P = TypeVar("P", bound=Paper)


def read_paper(kind: type[P], package: str) -> P:
    """Read and validate the file of a paper in its package."""
    with resources.as_file(resources.files(package) / "paper.yaml") as path:
        return kind.model_validate(Document(path, frozenset()).value)
