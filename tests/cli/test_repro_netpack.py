"""`cranny repro netpack`, run as a user would on few jobs."""

import base64
import csv
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.cli.conftest import Run

from cranny.repro.netpack import setups

pytest.importorskip("matplotlib", reason="pictures need the extra `repro`")


def test_an_evaluation_in_small(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setups, "QUICK_JOBS", 25)
    folder = tmp_path / "out"
    figures = ("--figures", "10,12,15,eq1")
    shown = run("repro", "netpack", "--quick", *figures, "--seeds", 1, "--processes", 1, "--out", folder)
    assert shown.code == 0, shown.err
    assert f"page: {folder / 'netpack.html'}" in shown.out
    stems = ("fig12", "fig15", "eq1")
    for stem in stems:
        assert {(folder / f"{stem}.{ending}").is_file() for ending in ("csv", "png", "svg")} == {True}
    with (folder / "fig12.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["point"] for row in rows} == {"1:1", "2:1", "4:1", "8:1", "20:1"}
    assert all(float(row["netpack_better_by"]) == 1.0 for row in rows if row["policy"] == "netpack")
    page = (folder / "netpack.html").read_text(encoding="utf-8")
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) == page.count("<img") == len(stems) + 3  # and one of each claim: Figs. 10, 12 and 15
    assert "A quick run (25 jobs each, 1 seed) shows what is measured" in page
    for picture in pictures:
        assert ET.fromstring(base64.b64decode(picture)).tag.endswith("svg")  # noqa: S314 - our own
    assert "the real trace is generated" in page


@pytest.mark.usefixtures("blank_pictures")
def test_two_processes_find_what_one_does(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setups, "QUICK_JOBS", 25)
    words = ("repro", "netpack", "--figures", "13", "--quick", "--seeds", 1, "--out", tmp_path, "--json")
    assert run(*words, "--processes", 2).json == run(*words, "--processes", 1).json


@pytest.mark.usefixtures("blank_pictures")
def test_single_figures_as_json(run: Run, tmp_path: Path) -> None:
    values = run("repro", "netpack", "--figures", "15", "--out", tmp_path, "--json").json
    assert values["figures"] == []
    assert {row["job"] for row in values["rates"]} == {"vgg16", "vgg19", "alexnet"}
    assert not (tmp_path / "fig7.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--figures", "14"),
            "cranny: --figures: '14' is none of 7, 8, 9, 11, 12, 13, load, queue, ties, ina, eq1, 10, 15\n",
        ),
        (
            ("--figures", ","),
            "cranny: --figures: nothing was chosen of 7, 8, 9, 11, 12, 13, load, queue, ties, ina, eq1, 10, 15\n",
        ),
    ],
)
def test_a_wrong_figure_is_one_clear_line(run: Run, words: tuple[str, ...], message: str) -> None:
    shown = run("repro", "netpack", *words)
    assert (shown.code, shown.err) == (2, message)


def test_a_folder_without_traces_names_the_file_it_lacks(run: Run, tmp_path: Path) -> None:
    shown = run("repro", "netpack", "--traces", tmp_path)
    assert shown.code == 2
    assert "no philly.parquet in this folder" in shown.err
