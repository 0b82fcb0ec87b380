"""The policy that docs/extend/policy.md writes passes what every policy of the table must pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks

PAGE = ROOT / "docs" / "extend" / "policy.md"
# Those of our tests that run over the policies of the table.
CHECKS = [
    "tests/test_architecture.py",
    "tests/test_front_door.py",
    "tests/core/test_protocol.py",
    "tests/core/test_random_streams.py",
    "tests/policies/test_simple_policies.py",
    "tests/sim/test_fast_replay.py",
    "tests/sim/test_simulate.py",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page, and its entry in the table as a plugin of pytest."""
    made = tmp_path_factory.mktemp("example")
    found = list(blocks(PAGE.read_text(encoding="utf-8")))
    for block in found:
        if block.title.endswith(".py"):
            (made / block.title).write_text(block.text, encoding="utf-8")
    entry = next(block.text for block in found if "PolicyEntry(" in block.text)
    (made / "table_entry.py").write_text(entry, encoding="utf-8")
    return made


def run(*command: str, folder: Path) -> str:
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "MYPYPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_passes_the_checks_of_every_policy(folder: Path) -> None:
    plugins = ("-p", "table_entry", "-p", "no:xdist")
    printed = run("pytest", *plugins, "-k", "worst-fit", "-q", "-rp", *CHECKS, folder=folder)
    assert [file for file in CHECKS if f"PASSED {file}" not in printed] == []


def test_is_formatted_and_typed_as_our_own_code(folder: Path) -> None:
    settings = str(ROOT / "pyproject.toml")
    files = [str(folder / name) for name in ("worst_fit.py", "rank_map.py", "smallest_first.py")]
    run("ruff", "format", "--check", "--config", settings, *files, folder=folder)
    run("ruff", "check", "--config", settings, "--ignore", "D100", *files, folder=folder)
    run("mypy", "--config-file", settings, *files, folder=folder)
