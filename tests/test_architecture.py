"""Habits of the code that no linter knows."""

import ast
import re
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
    ("backends/local_machine.py", "sched_getaffinity"): "only Linux has it",
    ("process_pool.py", "_inheriting"): "Python marks processes that are being spawned, and tells nothing else",
}
# One name, one thing. Two classes may share a name only if both are the same idea at two layers.
SAME_CLASS = {"Result": "the simulator's, and the same one that can also show itself"}
# Modules of these folders are named after what they are about: a command, a log format, a part of a paper.
NAMED_AFTER = ("cli/", "traces/readers/", "repro/")
SAME_MODULE = {
    "app": "the command line's and the web service's",
    "errors": "ours, and what the REST API makes of them",
    "explain": "why a job is where it is, in a replay and in the service",
    "job": "as policies see it, and as it runs: its agent",
    "metrics": "of a replay, and of the service for Prometheus",
    "protocol": "what the engine, and what the service, asks of its parts",
}
# Words that the field does not use: metaphors of our own, and jobs or clients as persons.
WORDS = (
    *("whoever", "nobody", "somebody", "anybody", "everybody", "he", "his"),
    *("told", "furnish", "guests?", "desk", "diary", "wish(es)?", "seats?", "beat", "books", "ledger", "door"),
    *("foresees?", "foreseen", "foresight", "shared out", "left out", "takes? turns", "works? out", "whereabouts"),
)
# Files and stored events of earlier versions still have these.
STILL_READ = ('"wishes"', "`wishes`", '"left out"', "CRANNY_BEAT_FILE")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = Function | ast.ClassDef | ast.Call | ast.Assert  # what the tests look at
Nodes = list[tuple[str, Node]]  # with the modules that they are in


def name_of(module: Path) -> str:
    return str(module.relative_to(SOURCE))


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {name_of(module): ast.parse(module.read_text(encoding="utf-8")) for module in MODULES}


@pytest.fixture(scope="module")
def nodes(trees: dict[str, ast.Module]) -> Nodes:
    return [(name, node) for name, tree in trees.items() for node in ast.walk(tree) if isinstance(node, Node)]


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 50


def test_modules_and_functions_are_short(nodes: Nodes) -> None:
    lengths = {name_of(module): len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {name: length for name, length in lengths.items() if length > MAX_MODULE_LINES} == {}
    found = [
        f"{name}: {node.name} has {length} lines"
        for name, node in nodes
        if isinstance(node, Function)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert found == []


def test_nothing_is_printed_or_asserted(nodes: Nodes) -> None:
    found = []
    for name, node in nodes:
        if isinstance(node, ast.Assert):
            found.append(f"{name}, line {node.lineno}: checks of input raise errors")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            found.append(f"{name}, line {node.lineno}: the library prints nothing")
    assert found == []


def test_every_module_says_what_it_is(trees: dict[str, ast.Module]) -> None:
    texts = {name: ast.get_docstring(tree) or "" for name, tree in trees.items()}
    assert [name for name, text in texts.items() if not text.partition("\n")[0].endswith((".", ":"))] == []


def test_nothing_is_found_by_its_name(nodes: Nodes) -> None:
    # What a policy or a network can do is declared in core/protocol.py, and found by `isinstance`.
    undeclared = []
    for module, node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"getattr", "hasattr"}
        ):
            name = node.args[1]
            found = (module, name.value) if isinstance(name, ast.Constant) else None
            if found is not None and found not in LOOKED_UP:
                undeclared.append(f"{module}, line {node.lineno}: declare {found} as a protocol")
    assert undeclared == []


def test_no_class_name_stands_for_two_things(nodes: Nodes) -> None:
    where: dict[str, list[str]] = {}
    for module, node in nodes:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            where.setdefault(node.name, []).append(module)
    twice = {name: found for name, found in where.items() if len(found) > 1}
    assert not twice.keys() - SAME_CLASS.keys(), twice


def test_no_module_name_stands_for_two_things() -> None:
    where: dict[str, list[str]] = {}
    for module in MODULES:
        if not module.stem.startswith("__") and not name_of(module).startswith(NAMED_AFTER):
            where.setdefault(module.stem, []).append(name_of(module))
    twice = {name: found for name, found in where.items() if len(found) > 1}
    assert not twice.keys() - SAME_MODULE.keys(), twice


def test_every_package_says_what_must_not_be_in_it(trees: dict[str, ast.Module]) -> None:
    denied = re.compile(r"\b(not|no|nothing|never|none|only)\b", re.IGNORECASE)
    texts = {name: ast.get_docstring(tree) or "" for name, tree in trees.items() if name.endswith("__init__.py")}
    assert [name for name, text in texts.items() if not denied.search(text)] == []


def test_the_words_are_those_of_the_field() -> None:
    unwanted = re.compile(rf"(?<![a-z])({'|'.join(WORDS)})(?![a-z])", re.IGNORECASE)
    texts = [each for each in SOURCE.rglob("*") if each.suffix in {".py", ".js", ".html", ".css"}]
    found = [
        f"{name_of(text)}:{number}: {word[0]}"
        for text in texts
        for number, line in enumerate(text.read_text(encoding="utf-8").splitlines(), 1)
        if (word := unwanted.search(line)) and not any(old in line for old in STILL_READ)
    ]
    assert found == []


@pytest.mark.parametrize("name", TABLE)
def test_every_policy_names_its_paper(name: str) -> None:
    entry = TABLE[name]
    text = " ".join((import_module(entry.path.partition(":")[0]).__doc__ or "").split())
    paper = re.search(r"(\w+)'(\d\d)", entry.paper)
    if paper is None:  # no paper: a textbook method says so
        assert "textbook" in text or "yardstick" in text
        return
    assert f"{paper[1]} 20{paper[2]}" in text
