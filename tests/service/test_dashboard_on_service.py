"""The dashboard on the real service, with real processes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.report.test_page_in_browser import CHROMIUM, browser
from tests.service.conftest import Serve
from tests.service.test_dashboard_in_browser import READY

from cranny.model.cluster import Cluster
from cranny.service.auth import Caller

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium in /usr/bin/chromium")
__all__ = ["browser"]  # the fixture


@pytest.fixture
def page(browser: "Browser") -> Iterator["Page"]:
    troubles: list[str] = []
    made = browser.new_page(viewport={"width": 1400, "height": 900})
    made.set_default_timeout(60_000)
    made.on("console", lambda message: troubles.append(message.text))
    made.on("pageerror", lambda error: troubles.append(str(error)))
    made.on("dialog", lambda dialog: dialog.accept())
    yield made
    made.close()
    # A job may end before its page asks for its traffic.
    assert [each for each in troubles if "409 (Conflict)" not in each] == []


def submit(page: "Page", url: str, gpus: int, command: str) -> str:
    page.goto(f"{url}/#/what-if")
    page.wait_for_selector(READY)
    page.get_by_label("GPUs", exact=True).fill(str(gpus))
    page.get_by_label("Command").fill(command)
    page.get_by_role("button", name="See what would happen").click()
    answer = page.locator(".answer h2").inner_text()
    page.get_by_role("button", name="Submit this job").click()
    page.get_by_text("Submitted as").wait_for()
    return answer


def test_a_job_is_submitted_seen_on_the_map_read_about_and_cancelled_in_the_page(
    serve: Serve, page: "Page"
) -> None:
    site = serve(real=True)
    page.goto(f"{site.url}/#/login?code={site.authenticator.one_time_code(Caller('root', 'admin'))}")
    page.wait_for_selector(READY)

    runs = submit(page, site.url, 12, "sh -c 'echo rank $RANK speaks; sleep 60'")
    assert runs == "It would start at once, on 3 machines."
    page.goto(f"{site.url}/#/")
    page.locator(".map-card summary").click()
    page.locator(".map-card tbody a.job").filter(has_text="job-1").nth(2).wait_for()
    assert page.locator(".map-card tbody a.job").count() == 3

    assert submit(page, site.url, 8, "sleep 60") == "It would have to wait."
    page.goto(f"{site.url}/#/")
    page.locator("table.jobs .why").filter(has_text="needs 8 GPUs, 4 free").wait_for()
    page.locator("table.jobs").get_by_role("link", name="job-2").click()
    page.locator(".finding").filter(has_text="needs 8 GPUs").wait_for()
    page.locator(".next").wait_for()
    page.get_by_role("button", name="Cancel the job").click()
    page.locator(".status.cancelled").wait_for()

    page.goto(f"{site.url}/#/jobs/job-1")
    page.locator(".log").filter(has_text="rank 0 speaks").wait_for()
    page.locator("#log-rank").select_option("7")
    page.locator(".log").filter(has_text="rank 7 speaks").wait_for()
    page.locator("svg.matrix").wait_for()
    page.get_by_role("button", name="Cancel the job").click()
    page.locator(".status.cancelled").wait_for()
    page.goto(f"{site.url}/#/timeline")
    page.wait_for_selector("canvas.gantt[data-ready=yes]")
    page.get_by_text("1 job on 3 of 4 machines.").wait_for()


def test_another_user_is_told_what_is_refused(serve: Serve, browser: "Browser") -> None:
    site = serve()
    site.running.submit(user="ann", gpus=4)
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.url}/#/jobs/job-1")
    page.get_by_label("Token").fill(site.tokens["bob"])
    page.get_by_role("button", name="Use this token").click()
    page.locator("#trouble").filter(has_text="job-1").wait_for()
    assert page.locator(".title button").count() == 0
    context.close()


def test_a_session_is_over_when_the_user_logs_out(serve: Serve, browser: "Browser") -> None:
    site = serve()
    context = browser.new_context()
    page, other = context.new_page(), context.new_page()
    for each in (page, other):
        each.set_default_timeout(10_000)
    page.goto(f"{site.url}/#/login?code={site.authenticator.one_time_code(Caller('root', 'admin'))}")
    other.goto(site.url)
    for each in (page, other):
        each.wait_for_selector(READY)
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()
    assert not page.get_by_role("button", name="Log out").is_visible()
    site.running.submit()  # a change, by which the other page notices
    other.get_by_text("you logged out elsewhere").wait_for()
    context.close()


def test_a_link_that_was_used_leads_to_a_page_that_says_how_to_get_in(serve: Serve, browser: "Browser") -> None:
    site = serve()
    link = f"{site.url}/#/login?code={site.authenticator.one_time_code(Caller('root', 'admin'))}"
    first, second = browser.new_context(), browser.new_context()
    page, other = first.new_page(), second.new_page()
    page.goto(link)
    page.wait_for_selector(READY)
    page.goto(link)  # the same browser is in already
    page.wait_for_selector(READY)
    other.goto(link)
    other.get_by_text("This login link was used before").wait_for()
    other.get_by_text("cranny token create me --role admin").wait_for()
    other.get_by_label("Token").fill(site.tokens["ann"])
    other.get_by_role("button", name="Use this token").click()
    other.wait_for_selector(READY)
    other.locator("#who").filter(has_text="ann, user").wait_for()
    first.close()
    second.close()


def test_circles_of_shared_links_are_drawn(serve: Serve, page: "Page") -> None:
    cluster = Cluster.fat_tree(racks=1, machines_per_rack=3, gpus_per_machine=4)
    setting: dict[str, Any] = {"name": "titan+cassini", "order": None, "period_s": 0.0, "options": {}}
    site = serve(cluster=cluster, policy=setting)
    for _ in range(2):  # each needs two of the three machines
        site.running.until(site.running.submit(gpus=6, model="vgg16"), "running")
    page.goto(f"{site.url}/#/login?code={site.authenticator.one_time_code(Caller('root', 'admin'))}")
    page.wait_for_selector(READY)
    page.goto(f"{site.url}/#/jobs/job-1")
    page.locator(".circle a").filter(has_text="job-2").first.wait_for()
    assert page.locator(".circle path.arc").count() >= 2
    assert 0 < float(page.locator(".circle .score").first.text_content() or "") <= 1
