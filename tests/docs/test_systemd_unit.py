"""The units of systemd: what `systemd-analyze` says of them, and what the page for operators states."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "cranny.service"
UNITS = sorted(UNIT.parent.glob("*.service"))
PAGE = ROOT / "docs" / "use" / "operators.md"
HAVE = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(
    HAVE is None and "CI" not in os.environ, reason="systemd-analyze is in the package systemd"
)


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(HAVE or "systemd-analyze"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_unit_is_valid(tmp_path: Path, unit: Path) -> None:
    """But for its program, which is not installed here: another one stands for it."""
    there = tmp_path / unit.name
    there.write_text(unit.read_text().replace("/opt/cranny/bin/cranny", sys.executable))
    ran = analyze("verify", "--man=no", str(there))
    assert (ran.returncode, ran.stderr) == (0, "")


@needs_systemd
def test_the_page_states_the_exposure_of_the_unit() -> None:
    ran = analyze("security", "--offline=yes", "--no-pager", str(UNIT))
    found = re.search(r"Overall exposure level for cranny.service: ([0-9.]+)", ran.stdout)
    stated = re.search(r"exposure of \*\*([0-9.]+)\*\*", PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert stated is not None
    assert abs(float(found[1]) - float(stated[1])) < 0.5  # versions of systemd weigh a little differently


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_unit_starts_a_command_that_there_is(unit: Path) -> None:
    command = re.search(r"^ExecStart=/opt/cranny/bin/cranny (serve .*)$", unit.read_text(), re.MULTILINE)
    assert command is not None
    help_text = subprocess.run(
        [sys.executable, "-c", "from cranny.cli import main; main()", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    ).stdout
    for option in re.findall(r"--[a-z-]+", command[1]):
        assert option in help_text
