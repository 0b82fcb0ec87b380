"""The reference of the commands, from the Typer application."""

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from docs.generate.markdown import code, fence, table
from typer.main import get_command

from cranny.cli.app import commands

KINDS = {int: "INTEGER", float: "NUMBER", Path: "PATH"}
INTRODUCTION = """# Commands

Made from the same definitions as `--help`. Exit codes: 0 done, 1 failed or refused, 2 wrong usage. Every command
has `--json` for programs; bad input gets one line with file, line and field.
"""


def page() -> str:
    """Return the page: one section a command, in the order of `cranny --help`."""
    sections = [_section(*found) for found in _commands(get_command(commands()), "cranny")]
    return "\n".join([INTRODUCTION, *sections])


def _commands(group: Any, path: str) -> Iterator[tuple[Any, str]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield command, f"{path} {name}"


def _section(command: Any, path: str) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    chosen = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    words = [path, *("[options]" if chosen else "",), *(_metavar(each) for each in arguments)]
    text, _, example = cleandoc(command.help or "").partition("Example:")
    parts = [f"## {path}\n", text.strip() + "\n", fence("text", " ".join(filter(None, words)))]
    if example:
        parts.append(f"Example: {code(' '.join(example.split()))}\n")
    rows = [(code(_metavar(each)), each.help or "", _default(each)) for each in arguments]
    rows += [(", ".join(map(code, _names(each))), each.help or "", _default(each)) for each in chosen]
    return "\n".join([*parts, table(("argument or option", "meaning", "default"), rows)])


def _metavar(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[]")
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> Iterator[str]:
    kind = option.type_descriptor.annotation
    value = "" if kind is bool else f" {option.metavar or KINDS.get(kind, 'VALUE')}"
    yield from (f"{name}{value}" for name in option.opts)
    yield from option.secondary_opts


def _default(param: Any) -> str:
    if param.required:
        return "required"
    if param.default in (None, False, "", ()) or callable(param.default):
        return ""
    return code(f"{param.default:g}" if isinstance(param.default, float) else str(param.default))
