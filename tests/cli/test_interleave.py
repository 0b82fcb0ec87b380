"""`cranny interleave`: scores, shifts, pictures, and files that make no sense."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from cranny.model.errors import InputError
from cranny.network.interleave.interleave_file import read_links

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "interleave.yaml"
PAIR = """
link_gbps: 50
jobs:
  - {name: one, iteration_ms: 200, arcs: [[0, 100, 50]]}
  - {name: other, iteration_ms: 200, arcs: [[0, 100, 50]]}
"""


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR, encoding="utf-8")
    return path


def test_two_half_up_jobs_are_shifted_by_half_an_iteration(run: Run, pair: Path) -> None:
    told = run("interleave", pair, "--json").json
    assert (told["before"], told["score"], told["bound"], told["loops"]) == (0.5, 1.0, 1.0, False)
    assert told["shifts_ms"] == {"one": 0.0, "other": 100.0}
    (link,) = told["links"]
    assert (link["search"], link["angles"], link["perimeter_ms"], link["error"]) == ("exact", 72, 200.0, 0.0)
    assert [job["rotation_deg"] for job in link["jobs"]] == [0.0, 180.0]


def test_people_read_scores_and_shifts(run: Run, pair: Path) -> None:
    ran = run("interleave", pair)
    assert ran.code == 0
    assert (
        "score 0.500 unshifted, 1.000 shifted (best of all rotations; 72 angles on a circle of 200 ms)" in ran.out
    )
    assert re.search(r"other\s+200 ms\s+100 ms\s+25 Gbps\s+1\s+100\.0 ms", ran.out)


def test_the_example_of_the_documentation_runs(run: Run, tmp_path: Path) -> None:
    told = run("interleave", EXAMPLE, "--json", "--out", tmp_path / "circles.svg").json
    assert [link["name"] for link in told["links"]] == ["rack0", "rack1", "rack2"]
    assert told["score"] > told["before"]
    assert told["picture"] == str(tmp_path / "circles.svg")


def test_the_picture_has_every_arc_twice_and_marks_what_is_too_much(run: Run, pair: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "circles.svg"
    assert run("interleave", pair, "--out", path).code == 0
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - our own file
    kinds = [element.get("class") for element in root.iter()]
    assert kinds.count("arc") == 4
    assert kinds.count("over") == 1  # before, not after
    words = "".join(root.itertext())
    assert "0.50" in words
    assert "1.00" in words


def test_the_page_loads_nothing_from_anywhere(run: Run, pair: Path, tmp_path: Path) -> None:
    path = tmp_path / "circles.html"
    assert run("interleave", pair, "--out", path).code == 0
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Score of 1 shared link: 0.50 before, 1.00 after." in page
    assert not re.search(r"""(src|href)=["']""", page)


def test_names_are_shown_as_they_are_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(PAIR.replace("one", '"[red]<b>"'), encoding="utf-8")
    picture = tmp_path / "odd.svg"
    ran = run("interleave", path, "--out", picture)
    assert "[red]<b>" in ran.out
    assert "[red]&lt;b&gt;" in picture.read_text(encoding="utf-8")


def test_a_loop_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text(
        PAIR + "links:\n  - {name: a, jobs: [one, other]}\n  - {name: b, jobs: [other, one]}\n", encoding="utf-8"
    )
    ran = run("interleave", path)
    assert ran.code == 0
    assert "Links tie jobs together in a loop" in ran.out
    assert "mean score 0.500 unshifted, 1.000 shifted" in ran.out


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("arcs: [[0, 100, 50]]", "arcs: [[0, 300, 50]]", r":4: jobs\[0\]: a circle's arcs\[0\] ends at 0.3 s"),
        ("arcs: [[0, 100, 50]]", "arcs: [[0, 100]]", r":4: jobs\[0\].arcs\[0\]: must be \[from ms, to ms, Gbps\]"),
        (
            "arcs: [[0, 100, 50]]",
            "arc: [[0, 100, 50]]",
            r":4: jobs\[0\]: unknown field 'arc'; did you mean 'arcs'",
        ),
        (", arcs: [[0, 100, 50]]}", "}", r":4: jobs\[0\]: arcs is missing"),
        (
            "iteration_ms: 200",
            "iteration_ms: -1",
            r":4: jobs\[0\].iteration_ms: must be a positive number, not -1",
        ),
        ("iteration_ms: 200", "model: vgg16", r":4: jobs\[0\]: needs either iteration_ms and arcs, or a model"),
        ("iteration_ms: 200", "gpus: 2, iteration_ms: 200", r":4: jobs\[0\]: gpus is only for jobs with a model"),
        ("name: other", "name: one", r":5: jobs\[1\].name: two jobs are called 'one'"),
        ("link_gbps: 50", "link_gbps: 0", r":2: link_gbps: must be a positive number, not 0"),
    ],
)
def test_files_that_make_no_sense_get_one_clear_line(
    run: Run, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(PAIR.replace(old, new, 1), encoding="utf-8")
    ran = run("interleave", path)
    assert ran.code == 2
    assert len(ran.err.strip().splitlines()) == 1
    assert re.search(problem, ran.err)


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ("{name: a, model: vgg166, gpus: 2}", "unknown model 'vgg166'; did you mean 'vgg16'?"),
        ("{name: a, model: vgg16}", "gpus is missing"),
        ("{name: a, model: vgg16, gpus: 3, machines: 2}", "3 GPUs cannot be spread evenly over 2 machines"),
        ("{name: a, model: vgg16, gpus: 2, collective: rings}", "unknown collective 'rings'"),
        ("{name: a, model: vgg16, gpus: 2, batch: 7}", "was not measured at batch 7"),
        ("{name: a, model: gpt2, gpus: 2, tp: 4}", "2 GPUs cannot be split into tp 4 x pp 1 groups"),
    ],
)
def test_models_that_make_no_sense_are_named(tmp_path: Path, job: str, problem: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"jobs:\n  - {job}\n", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(problem)):
        read_links(path)


def test_a_link_with_an_unknown_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(PAIR + "links:\n  - {name: a, jobs: [one, othr]}\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"bad.yaml:7: links\[0\].jobs\[1\]: unknown job 'othr'; did you mean 'other'"
    ):
        read_links(path)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--precision", "0"), "--precision: must be a positive number"),
        (("--precision", "400"), "--precision: must be from"),
        (("--quantum-ms", "-1"), "--quantum-ms: must be a positive number"),
        (("--quantum-ms", "0"), "--quantum-ms: must be a positive number"),
        (
            ("--quantum-ms", "1e9"),
            "--quantum-ms: 1e+09 ms is longer than an iteration of job 'one' (200 ms)",
        ),
        (("--out", "picture.png"), "--out: must end in .svg or .html, not 'picture.png'"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    run: Run, pair: Path, words: tuple[str, ...], problem: str
) -> None:
    ran = run("interleave", pair, *words)
    assert ran.code == 2
    assert problem in ran.err


def test_jobs_that_share_nothing_are_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "alone.yaml"
    path.write_text("jobs:\n  - {name: a, model: vgg16, gpus: 2}\n", encoding="utf-8")
    ran = run("interleave", path)
    assert ran.code == 2
    assert "no link carries more than one job" in ran.err
