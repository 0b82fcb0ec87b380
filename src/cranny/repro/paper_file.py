"""A paper as data: its names, claims, tables and sentences in a YAML file beside the code that computes.

Texts are templates of `str.format`; behind the colon of a field may also be the name of a number format of ours.
"""

from collections.abc import Callable, Mapping
from importlib import resources
from string import Formatter
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict

from cranny.model.validate import percent
from cranny.model.yaml_file import Document
from cranny.report.text_table import TextTable
from cranny.repro.claim import Claim, Holds
from cranny.repro.number_format import extent, listed, plain, times

FORMATS: Mapping[str, Callable[[Any], str]] = {
    "plain": plain,
    "times": times,
    "percent": percent,
    "extent": extent,
    "listed": listed,
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


class ClaimText(PaperModel):
    """A claim of the paper, or a question of ours: its title, what we say of it, and the paper's numbers."""

    title: Text
    paper: str = ""  # what its text states, which is said first
    text: Text = "{text}"
    parts: Mapping[str, Text] = {}  # sentences that are repeated, or not always said
    numbers: Mapping[str, Number] = {}

    def part(self, name: str, /, **values: object) -> str:
        """Return one of the sentences with its values."""
        return fill(self.parts[name], **self.numbers, **values)


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
    facts: Mapping[str, Text]  # how this was done
    claims: Mapping[str, ClaimText]
    tables: Mapping[str, TableText] = {}
    untested: str

    def claim(self, key: str, holds: Holds = "beyond the paper", /, **values: object) -> Claim:
        """Return what became of a claim, or what we find on a question that the paper does not ask."""
        claim = self.claims[key]
        known = {**claim.numbers, **values}
        stated = f"The paper: {claim.paper}. " if claim.paper else ""
        return Claim(fill(claim.title, **known), holds, stated + fill(claim.text, **known))

    def say(self, *keys: str, **values: object) -> list[str]:
        """Return sentences on how this was done, with the values that they need."""
        return [fill(self.facts[key], **values) for key in keys]

    def table(self, key: str, rows: list[list[str]], /, *heads: str, **values: object) -> TextTable:
        """Return a table of some rows; `heads` come behind those of the file."""
        table = self.tables[key]
        return TextTable(fill(table.title, **values), fill(table.note, **values), (*table.head, *heads), rows)

    def label(self, scheme: str, form: str = "{} ({})") -> str:
        """Return the name of a policy, with the paper's name in brackets if that is another."""
        name = self.names.get(scheme)
        return form.format(scheme, name) if name and name.lower() != scheme else scheme

    @property
    def not_tested(self) -> Claim:
        """Return what a simulation cannot show."""
        return Claim("What is not tested", "not tested", self.untested)


P = TypeVar("P", bound=Paper)


def read_paper(kind: type[P], package: str) -> P:
    """Read and validate the file of a paper in its package."""
    with resources.as_file(resources.files(package) / "paper.yaml") as path:
        return kind.model_validate(Document(path, frozenset()).value)
