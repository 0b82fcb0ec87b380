"""`cranny repro titan`, run as a user would on a few hundred jobs."""

import base64
import csv
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.cli.conftest import Run

from cranny.repro.titan import replays

pytest.importorskip("matplotlib", reason="pictures need the extra `repro`")
CHROMIUM = Path("/usr/bin/chromium")


@pytest.mark.usefixtures("svg_alone")
def test_the_whole_evaluation_in_small(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "QUICK_JOBS", 60)
    folder = tmp_path / "out"
    shown = run("repro", "titan", "--quick", "--seeds", 2, "--processes", 1, "--out", folder)
    assert shown.code == 0, shown.err
    assert "no verdict" in shown.out
    assert f"page: {folder / 'titan.html'}" in shown.out
    for number in (2, 3, 4, 5, 6, 7, 9, 10, 11):
        assert {(folder / f"fig{number}.{ending}").is_file() for ending in ("csv", "svg")} == {True}
    with (folder / "fig2.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    titan = next(
        row for row in rows if (row["policy"], row["trace"], row["network"]) == ("titan", "itp", "instant")
    )
    assert float(titan["paper"]) == 174
    assert float(titan["ours"]) > 0
    page = (folder / "titan.html").read_text(encoding="utf-8")
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) == page.count("<img") == 10 + 9 + 4  # figures, the claims on them, our questions
    for picture in pictures:
        assert ET.fromstring(base64.b64decode(picture)).tag.endswith("svg")  # noqa: S314 - our own
    assert "all jobs are generated" in page
    assert "the first 60 jobs of each trace, 2 seeds" in page
    claims = json.loads((folder / "titan.json").read_text(encoding="utf-8"))["claims"]
    assert {claim["verdict"] for claim in claims} == {"no verdict", "beyond the paper", "not tested"}
    if CHROMIUM.exists():
        assert_all_pictures_are_shown(folder / "titan.html", len(pictures))


def assert_all_pictures_are_shown(page: Path, count: int) -> None:
    """Open a page in a browser, where all its pictures must be seen."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    troubles: list[str] = []
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        tab = chromium.new_page()
        tab.on("console", lambda message: troubles.append(message.text))
        tab.goto(page.as_uri())
        widths = tab.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")
        chromium.close()
    assert troubles == []
    assert len(widths) == count
    assert all(width > 100 for width in widths)


@pytest.mark.usefixtures("blank_pictures")
def test_single_experiments_as_json(run: Run, tmp_path: Path) -> None:
    values = run("repro", "titan", "--experiments", "5, 7", "--out", tmp_path, "--json").json
    assert {row["figure"] for row in values["testbed"]} == {9, 11}
    assert values["figures"] == []
    assert not (tmp_path / "fig10.csv").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_two_processes_find_what_one_does(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "QUICK_JOBS", 60)
    words = ("repro", "titan", "--experiments", "1", "--quick", "--seeds", 1, "--out", tmp_path, "--json")
    assert run(*words, "--processes", 2).json == run(*words, "--processes", 1).json


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--experiments", "8"), "cranny: --experiments: '8' is none of 1, 2, 3, 4, 5, 6, 7\n"),
        (("--experiments", ","), "cranny: --experiments: nothing was chosen of 1, 2, 3, 4, 5, 6, 7\n"),
    ],
)
def test_a_wrong_experiment_is_one_clear_line(run: Run, words: tuple[str, ...], message: str) -> None:
    shown = run("repro", "titan", *words)
    assert (shown.code, shown.err) == (2, message)


def test_a_folder_without_traces_names_the_files_it_lacks(run: Run, tmp_path: Path) -> None:
    shown = run("repro", "titan", "--traces", tmp_path)
    assert shown.code == 2
    assert "no elasticflow_itp.parquet and no philly.parquet in this folder" in shown.err
