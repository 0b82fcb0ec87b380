import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cranny.cli import main
from cranny.cli.console import out


def _no_such_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True)
class Ran:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, read by the letter of the standard: no NaN, no Infinity."""
        return json.loads(self.out, parse_constant=_no_such_number)


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command in this process, as if typed on a terminal of 200 columns."""
    monkeypatch.setattr(out, "width", 200)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["cranny", *map(str, words)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        shown = capsys.readouterr()
        assert isinstance(code, int)
        return Ran(code, shown.out, shown.err)

    return run


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """Return a trace of five jobs; the last is larger than a cluster of 8 GPUs."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_s,gpus,duration_s,model\n"
        "a,0,6,100,vgg16\nb,10,4,50,resnet50\nc,20,2,5,gpt2\nd,30,1,500,\nhuge,40,99,1,\n",
        encoding="utf-8",
    )
    return path
