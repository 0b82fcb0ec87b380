"""`cranny bench`: measure what the design promises."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress
from cranny.cli.options import option
from cranny.model.errors import CrannyError, unknown


def bench(
    cases: Annotated[
        list[str] | None, typer.Argument(help="Names of cases; all if none is given. See --list.")
    ] = None,
    list_cases: Annotated[bool, option("--list", "List the cases.")] = False,
    check: Annotated[bool, option("--check", "Exit with 1 when a budget is missed.")] = False,
    record: Annotated[bool, option("--record", "Append what was measured to benchmarks/history.jsonl.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Measure speed and quality against the budgets; ratios compare within one run.

    Example: cranny bench decide replay --json --check
    """
    benchmarks = _cases()
    known = {name: case.about for name, case in benchmarks.CASES.items()}
    if list_cases:
        if as_json:
            print_json(known)
        else:
            out.print(*(f"[bold]{name}[/bold]  {about}" for name, about in known.items()), sep="\n")
        return
    measured, chosen = [], cases or list(known)
    for name in chosen:
        if name not in known:
            raise unknown("bench case", name, known)
    with progress("measuring", len(chosen)) as tick:
        for done, name in enumerate(chosen, 1):
            measured.append(benchmarks.run_case(name))
            tick(done)
    if as_json:
        print_json([each.facts() for each in measured] if len(measured) > 1 else measured[0].facts())
    else:
        for each in measured:
            out.print(each.table())
    if record:
        import_module("benchmarks.history").append(measured)
    if check and not all(budget.ok for each in measured for budget in each.budgets):
        raise typer.Exit(1)


def _cases() -> Any:
    """Return the package `benchmarks`, which is part of the source checkout and not of the installed package."""
    for folder in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (folder / "benchmarks" / "measure.py").is_file():
            if str(folder) not in sys.path:
                sys.path.append(str(folder))
            return import_module("benchmarks")
    raise CrannyError("the benchmarks are not installed: run `cranny bench` in a checkout of cranny")
