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
# Names that are looked up although they are known, by module, all of them of other packages.
LOOKED_UP = {
    ("model/yaml_file.py", "CSafeLoader"): "PyYAML has it only where it was built with libyaml",
    ("model/yaml_file.py", "strerror"): "some errors of reading a file are not of the system",
    ("core/jit.py", "py_func"): "a function is compiled already, or not",
    ("cli/typer_errors.py", "is_flag"): "only options of click can be flags",
    ("cli/typer_errors.py", "param"): "errors of click differ in what they know",
    ("cli/typer_errors.py", "option_name"): "errors of click differ in what they know",
    ("cli/typer_errors.py", "param_type"): "errors of click differ in what they know",
    ("cli/typer_errors.py", "possibilities"): "errors of click differ in what they know",
    ("cli/typer_errors.py", "errors"): "pydantic's error behind one of ours, which the command does not import",
    ("service/writer_lock.py", "orig"): "SQLAlchemy wraps errors of drivers, but not all",
    ("backends/host.py", "sched_getaffinity"): "only Linux has it",
    ("process_pool.py", "_inheriting"): "Python marks processes that are being spawned, and tells nothing else",
}


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


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_nothing_is_found_by_its_name(module: Path) -> None:
    # What a policy or a network can do is declared in core/protocol.py, and found by `isinstance`.
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"getattr", "hasattr"}
        ):
            name = node.args[1]
            found = (name_of(module), name.value) if isinstance(name, ast.Constant) else None
            assert found is None or found in LOOKED_UP, f"line {node.lineno}: declare {found} as a protocol"


@pytest.mark.parametrize("name", TABLE)
def test_every_policy_names_its_paper(name: str) -> None:
    entry = TABLE[name]
    text = " ".join((import_module(entry.path.partition(":")[0]).__doc__ or "").split())
    paper = re.search(r"(\w+)'(\d\d)", entry.paper)
    if paper is None:  # no paper: a textbook method says so
        assert "textbook" in text or "yardstick" in text
        return
    assert f"{paper[1]} 20{paper[2]}" in text
