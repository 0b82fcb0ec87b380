"""Checking what a file holds against the fields that it may have, with one line about what is wrong first."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cranny.model.errors import InputError, unknown
from cranny.model.yaml_file import Document, Step, shown

MAX_NAME = 100


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
        raise _first_problem(document, error, kind, below, must_be) from None


def _first_problem(
    document: Document,
    error: ValidationError,
    kind: type[Fields],
    below: Mapping[str, type[Fields]],
    must_be: Mapping[str, str],
) -> InputError:
    """Turn the problem that stands first in the file into one line; unknown fields explain missing ones."""
    problem = min(
        error.errors(include_url=False),
        key=lambda found: (found["type"] != "extra_forbidden", document.line(found["loc"])),
    )
    steps: tuple[Step, ...] = problem["loc"]
    last = steps[-1] if steps else None
    if problem["type"] == "missing":
        return document.error(steps, "is missing")
    owners = [step for step in steps[:-1] if isinstance(step, str)]
    if problem["type"] == "extra_forbidden":
        known = below[owners[-1]] if owners else kind
        what = unknown("field", str(last), known.model_fields)
        return document.error(steps[:-1], str(what), document.line(steps))
    if isinstance(last, str):
        wanted = must_be.get(last, "a positive number")
    else:
        wanted = must_be.get(f"{owners[-1]}[]" if owners else "", "a mapping of fields")
    return document.error(steps, f"must be {wanted}, not {shown(problem['input'])}")
