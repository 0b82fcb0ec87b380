"""The answer as a page: an operator reads of waiting first, and no number without the time that it covers."""

import re
from pathlib import Path

from tests.analysis.whatif.test_what_if import STARTS, asked, log

from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.tables import answer_tables, write_page


def test_the_page_leads_with_waiting_and_then_money(tmp_path: Path) -> None:
    answer = asked(log(STARTS), ("titan", "best-fit"))
    page = write_page(answer, tmp_path / "out.html").read_text(encoding="utf-8")
    (headline,) = re.findall(r'<p class="finding">(.*?)</p>', page)
    assert headline.replace("\N{NO-BREAK SPACE}", " ") == findings(answer)[0]
    assert headline.startswith("In the log jobs waited 23 min on average")
    said = page.split('id="what-if"')[1].split("</ul>")[0]
    assert said.index("That is the whole difference to the log") < said.index("could have been off on average")
    assert "That is no saving" in said
    assert "machines on" not in page.split("<main>")[0]


def test_the_page_says_which_time_its_numbers_cover(tmp_path: Path) -> None:
    answer = asked(log(STARTS), ("titan", "best-fit"))
    page = write_page(answer, tmp_path / "out.html").read_text(encoding="utf-8")
    hint = page.split('id="summary-head"')[1].split("</p>")[0]
    assert "profit are means over arrivals" in hint
    assert "total_profit" not in page
    assert "extend to the end of the last job, unlike the tables above" in hint
    span = "over the 2 h from the first to the last submission"
    assert span in hint
    machines = next(sheet for sheet in answer_tables(answer) if sheet.title.startswith("Machines"))
    assert machines.note.startswith(f"Of 2 machines {span};")


def test_a_burst_of_jobs_is_covered_to_the_last_end() -> None:
    answer = asked(log(submit_s=[0.0] * 4))
    assert answer.span == "the 2 h from the first submission to the last end"


def test_what_runs_in_rounds_does_not_put_the_log_in_rounds() -> None:
    policy, was = asked(log(STARTS), ("titan",), period_s=60.0).results
    assert policy.settings["period_s"] == 60.0
    assert was.settings["period_s"] == 0.0
