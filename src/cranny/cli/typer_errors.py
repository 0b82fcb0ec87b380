"""How commands tell what is wrong with a command line, and which of their options take a value."""

import sys
from collections.abc import Callable
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from cranny.cli.interrupt import CODE, UserInterruptError
from cranny.model.errors import InputError, unknown

# Older versions of Typer take their errors from click, newer ones bring their own; both show us this one.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)


class Command(TyperCommand):
    """A command whose flags are shown without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return _plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands that raises wrong usage as an error like any other."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return _plain_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what was typed; show the help if that is nothing."""
        if not args and not ctx.resilient_parsing:
            if text := ctx.get_help():  # empty if Rich has printed it
                typer.echo(text)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is meant."""
        known = self.get_command(ctx, args[0]) is not None or args[0].startswith("-")
        if not known and not ctx.resilient_parsing:
            raise unknown("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Typer would end silently after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise UserInterruptError from None

    def main(self, *args: Any, **given: Any) -> Any:
        """Run what was typed and end the process."""
        try:
            code = super().main(*args, **{**given, "standalone_mode": False})
        except _UsageError as error:
            raise InputError(_reworded(error)) from None
        if code == CODE:  # Ctrl-C while Typer read the command line, or when the command had just ended
            raise UserInterruptError
        sys.exit(code or 0)


class Commands(typer.Typer):
    """Commands that are shown and run as above."""

    def __init__(self, **given: Any) -> None:
        super().__init__(cls=Group, **given)

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        """Add a function as a command."""
        return super().command(name, cls=Command, **given)


def _plain_flags(params: list[Any]) -> list[Any]:
    """Keep Typer from showing that a flag takes a value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _reworded(error: Any) -> str:
    """Say what is wrong in our words: the option as people write it, then what it must be."""
    param, option, text = getattr(error, "param", None), getattr(error, "option_name", ""), error.message
    if param is not None:
        name = max(_options(param), key=len, default=(param.metavar or param.name.upper()).strip("[]"))
        if hasattr(error, "param_type"):  # a value is missing
            return f"{name}: must be given"
        from cranny.model.yaml_file import shown

        text = text.removesuffix(".").replace("Input should be", "must be", 1).partition(", unable to")[0]
        if text.startswith("must be") and hasattr(error.__cause__, "errors"):
            text = f"{text}, not {shown(error.__cause__.errors()[0]['input'])}"
        return f"{name}: {text}"
    if hasattr(error, "possibilities"):
        params = error.ctx.command.get_params(error.ctx) if error.ctx is not None else ()
        return str(unknown("option", option, {name for each in params for name in _options(each)}))
    text = text[:1].lower() + text[1:].rstrip(".")
    return f"{option}: {text.removeprefix(f'option {option!r} ')}" if option else text


def _options(param: Any) -> list[str]:
    """Return all names of an option; none of an argument."""
    return [*param.opts, *param.secondary_opts] if param.param_type_name == "option" else []
