"""Files of a channel are read without Python: by the lines of the page that describes it, and by JavaScript."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cranny.channel.control import CheckpointRequest, Control, Pace
from cranny.channel.report import Record, Report, Resumed, Saved

PAGE = Path(__file__).parents[2] / "docs" / "use" / "channel.md"


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """Return a folder with the control of a job of two ranks, and what rank 0 has reported."""
    request = CheckpointRequest(3, 1_700_000_060.0, "resized")
    Control(7, Pace(0.448, 0.224, 1_700_000_000.0), (0.25, 0.75), checkpoint=request).write(tmp_path)
    records = tuple(Record(at, 1_700_000_000.0 + at, 10 * at, 10, 4.5, samples=320.0) for at in (1, 2))
    report = Report(0, records, Saved(20, 1_700_000_002.0, 0.1, 3), Resumed(0, 1_700_000_000.0, 2.0))
    report.write(tmp_path, "secret")
    return tmp_path


def output(words: list[str], channel: Path) -> str:
    env = {**os.environ, "CRANNY_CHANNEL": str(channel)}
    return subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_shell_lines_of_the_page_read_a_channel(channel: Path) -> None:
    (block,) = re.findall(r"```sh\n(jq .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    first, second = block.strip().splitlines()
    assert json.loads(output(["sh", "-c", first], channel)) == {
        "pace": {"period_s": 0.448, "shift_s": 0.224, "epoch_s": 1_700_000_000.0},
        "shares": [0.25, 0.75],
        "checkpoint": {"number": 3, "by_s": 1_700_000_060.0, "reason": "resized"},
    }
    rows = [line.split("\t") for line in output(["sh", "-c", second], channel).splitlines()]
    assert [[float(cell) for cell in row] for row in rows] == [[10.0, 0.45], [20.0, 0.45]]


READER = """
const fs = require("node:fs"), folder = process.env.CRANNY_CHANNEL;
const read = (name) => JSON.parse(fs.readFileSync(`${folder}/${name}`, "utf8"));
const { pace, shares, checkpoint } = read("control.json"), { records, saved, resumed } = read("report-0.json");
const afterS = 1700000000.5;  // the next slot after this moment
const slot = Math.ceil((afterS - pace.epoch_s - pace.shift_s) / pace.period_s);
const answered = saved.request >= checkpoint.number;
console.log(JSON.stringify({
  next_s: pace.epoch_s + pace.shift_s + slot * pace.period_s, samples: shares.map((share) => 32 * share),
  answered, steps: records.map((each) => each.step), resumed: resumed.step,
}));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_reader_in_javascript_finds_its_slot_its_samples_and_what_was_saved(channel: Path) -> None:
    found = json.loads(output(["node", "-e", READER], channel))
    assert found.pop("next_s") == pytest.approx(1_700_000_000.672)
    assert found == {"samples": [8.0, 24.0], "answered": True, "steps": [10, 20], "resumed": 0}
