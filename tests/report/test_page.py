import dataclasses
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from tests.report.synthetic import FakeResult
from tests.report.test_table import renamed

from cranny.report import summary_svg
from cranny.report.page import render, write_report
from cranny.report.shell import json_for_script
from cranny.report.summary_svg import write_picture

EVIL = "</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """Collects the elements of a page and what stands in each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.scripts and self.lasttag == "script":
            self.scripts[-1] += data


def poisoned(result: FakeResult) -> FakeResult:
    evil = pl.concat_str(pl.lit(EVIL), pl.col("job_id")).alias("job_id")
    jobs = result.jobs.with_columns(evil, pl.lit(EVIL).alias("model"), pl.lit(EVIL).alias("reason"))
    machines = tuple(dataclasses.replace(machine, name=EVIL) for machine in result.cluster.machines)
    cluster = dataclasses.replace(
        result.cluster, machines=machines, node_names=(EVIL,) * len(result.cluster.node_names)
    )
    made = dataclasses.replace(result, jobs=jobs, runs=result.runs.with_columns(evil), cluster=cluster)
    return renamed(
        made, policy=f"cranny{EVIL}", trace=EVIL, command=EVIL, cluster=EVIL, version=EVIL, trace_notes=[EVIL]
    )


def test_writes_one_page_and_makes_its_folder(results: Sequence[FakeResult], tmp_path: Path) -> None:
    path = write_report(results, tmp_path / "new" / "out.html", title="A & B")
    page = path.read_text(encoding="utf-8")
    assert "<title>A &amp; B</title>" in page
    assert len(page) < 600_000


def test_the_same_results_give_the_same_bytes(results: Sequence[FakeResult]) -> None:
    assert render(results) == render(results)


def test_nothing_is_loaded_from_anywhere(results: Sequence[FakeResult]) -> None:
    page = render(results)
    addresses = set(re.findall(r"https?://[^\"'\s)<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not {"link", "img", "iframe", "object"} & set(Elements(page).tags)
    assert "url(" not in page
    assert "@import" not in page


def test_hostile_names_stay_text(results: Sequence[FakeResult]) -> None:
    page = render([poisoned(result) for result in results], title=EVIL)
    elements = Elements(page)
    assert "img" not in elements.tags
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    assert len(elements.scripts) == 3
    assert json.loads(elements.scripts[0])["runs"][0]["label"].startswith("cranny</script>")


def test_json_for_a_script_survives_the_round_trip() -> None:
    value = {"a": f"{EVIL}<!--\u2028&\u2029", "b": [1.5, None]}
    text = json_for_script(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_the_settings_commands_notes_and_reasons_are_on_the_page(results: Sequence[FakeResult]) -> None:
    page = render([*results[:1], renamed(results[1], seed=7)])
    assert "cranny simulate made-up.parquet --policy cranny --network isolated --seed 0" in page
    assert "Models were drawn with the run&#x27;s seed." in page
    assert "wants 97 GPUs, the cluster has 96" in page
    assert "<code>too-large</code>" in page
    assert "<td>7</td>" in page


def test_marks_the_best_and_emphasises_the_default_policy(results: Sequence[FakeResult]) -> None:
    page = render(results)
    assert page.count('class="best"') >= 8
    assert '<tr data-run="0" class="strong">' in page
    assert "--run-0:#cc5200" in page


def test_a_single_run_needs_no_marks(results: Sequence[FakeResult]) -> None:
    assert 'class="best"' not in render(results[1:2])


def test_a_run_without_any_job_still_makes_a_page(results: Sequence[FakeResult]) -> None:
    empty = dataclasses.replace(
        results[0],
        summary=dict.fromkeys(results[0].summary, float("nan")),
        jobs=results[0].jobs.tail(1),
        timeline=results[0].timeline.clear(),
        runs=results[0].runs.clear(),
    )
    assert "placed no job" in render([empty])
    assert "nothing to compare" in render([empty, results[1]])


@pytest.mark.parametrize("count", [1, 4, 8])
def test_the_picture_is_one_small_standalone_svg(
    results: Sequence[FakeResult], tmp_path: Path, count: int
) -> None:
    runs = [renamed(results[run % 4], policy=f"policy-{run}") for run in range(count)]
    text = write_picture([results[0], *runs], tmp_path / "summary_svg.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314 - our own text
    assert root.get("viewBox") == "0 0 1000 420"
    assert len(text) < 60_000
    assert "var(" not in text


def test_the_picture_escapes_names(results: Sequence[FakeResult]) -> None:
    ET.fromstring(summary_svg.render([poisoned(results[0])]))  # noqa: S314 - our own text
