"""The notebooks run, and return what they show."""

import json
from pathlib import Path

import pytest

from tests.docs.notebook import NOTEBOOKS, outputs


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["policy", "what-if"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_a_notebook_returns_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLARS_FMT_MAX_COLS", "20")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    shown = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert outputs(notebook) == shown
