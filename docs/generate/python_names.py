"""The reference of the Python interface, from the names that `cranny` exports."""

import inspect
from functools import cached_property
from types import ModuleType
from typing import Any

from docs.generate.markdown import fence

import cranny

INTRODUCTION = """# Python

All public names, as `import cranny` has them, with the signatures and the words of the code. Everything else is
internal and may change with any version.
"""


def page() -> str:
    """Return the page: functions, values, then errors."""
    found = {name: getattr(cranny, name) for name in cranny.__all__ if not name.startswith("_")}
    errors = [name for name, value in found.items() if inspect.isclass(value) and issubclass(value, Exception)]
    classes = [name for name, value in found.items() if inspect.isclass(value) and name not in errors]
    functions = [name for name in found if name not in {*errors, *classes}]
    parts = [INTRODUCTION]
    for title, names in (("Functions", functions), ("Values", classes), ("Errors", errors)):
        parts += [f"## {title}\n", *(_entry(name, found[name]) for name in names)]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    if isinstance(value, ModuleType):  # `cranny.policies`: a module and the function of its listing
        value = value.listing
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, Exception):
        return f"### {name}\n\n{text}\n"
    parts = [f"### {name}\n", _signature(name, value), f"{_prose(text)}\n"]
    if inspect.isclass(value):
        members = [_member(attribute, each) for attribute, each in sorted(_public(value).items())]
        parts += [line for line in members if line]
    return "\n".join([*parts, ""])


def _public(value: type) -> dict[str, Any]:
    bases = [base for base in value.__mro__ if base.__module__.startswith("cranny")]
    return {
        name: each for base in reversed(bases) for name, each in vars(base).items() if not name.startswith("_")
    }


def _member(name: str, each: Any) -> str:
    if isinstance(each, property | cached_property):
        text, shown = inspect.getdoc(each.fget if isinstance(each, property) else each.func) or "", name
    elif isinstance(each, classmethod | staticmethod) or inspect.isfunction(each):
        function = each.__func__ if isinstance(each, classmethod | staticmethod) else each
        text, shown = inspect.getdoc(function) or "", f"{name}{_arguments(function)}"
    else:
        return ""
    return f"- `{shown}`: {_first(text)}" if text else f"- `{shown}`"


def _arguments(function: Any) -> str:
    named = [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]
    return f"({', '.join(named)})"


def _signature(name: str, value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except ValueError:
        return ""
    arguments, arrow, returned = text.rpartition(" -> ") if " -> " in text else (text, "", "")
    inside = arguments.removeprefix("(").removesuffix(")")
    shown = inside.replace("cranny.", "").replace("<factory>", "...")
    if len(shown) > 90:  # an argument a line
        shown = "\n    " + ",\n    ".join(_split(shown)) + ",\n"
    return fence("python", f"cranny.{name}({shown}){arrow}{returned.replace('cranny.', '')}")


def _split(arguments: str) -> list[str]:
    """Split at commas that are inside no brackets."""
    found, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found]


def _first(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _prose(text: str) -> str:
    """Keep paragraphs and indented code of a docstring."""
    return text.replace("\n    ", "\n\n    ", 1) if "\n    " in text and "\n\n    " not in text else text
