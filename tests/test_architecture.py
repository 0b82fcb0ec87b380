"""Habits of the code that no linter knows."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import cranny
from cranny.policies import TABLE

SOURCE = Path(cranny.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_MODULE_LINES = 450
MAX_FUNCTION_LINES = 70


def name_of(module: Path) -> str:
    return str(module.relative_to(SOURCE))


def functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_modules_and_functions_are_short(module: Path) -> None:
    lines = module.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_MODULE_LINES
    for function in functions(module):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        assert length <= MAX_FUNCTION_LINES, f"{function.name} has {length} lines"


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_nothing_is_printed_or_asserted(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.Assert), f"line {node.lineno}: checks of input raise errors"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}: the library prints nothing"


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_module_says_what_it_is(module: Path) -> None:
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    assert text
    assert text.splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize("name", TABLE)
def test_every_policy_names_its_paper(name: str) -> None:
    entry = TABLE[name]
    text = " ".join((import_module(entry.path.partition(":")[0]).__doc__ or "").split())
    paper = re.search(r"(\w+)'(\d\d)", entry.paper)
    if paper is None:  # no paper: a textbook method says so
        assert "textbook" in text or "yardstick" in text
        return
    assert f"{paper[1]} 20{paper[2]}" in text
