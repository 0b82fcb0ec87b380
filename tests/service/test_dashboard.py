import re
from collections.abc import Iterator
from importlib import resources

import httpx
import pytest
from tests.service.fake_api import Fake, serving

from cranny.service.dashboard import dashboard

SCRIPTS = sorted(name for name in dashboard.site().assets if name.endswith(".js"))
MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(.style"
FOLDERS = [resources.files(package).joinpath(folder) for package, folder in dashboard.FOLDERS]
SOURCES = {entry.name: entry for folder in FOLDERS for entry in folder.iterdir()}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(Fake(0)) as url, httpx.Client(base_url=url, trust_env=False) as made:
        yield made


def test_the_page_allows_nothing_inline_and_nothing_from_elsewhere(client: httpx.Client) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|https?://", answer.text)
    assert "{{" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_is_checked_each_time_and_its_files_are_kept(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={"If-None-Match": f'W/{page.headers["etag"]}, "other"'})
    assert (again.status_code, again.content) == (304, b"")
    paths = re.findall(r'(?:href|src)="(/assets/[^"]+)"', page.text)
    assert len(paths) > len(SCRIPTS)
    for path in set(paths):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    "name", ["dashboard.py", "..%2fpages.py", "%2e%2e/%2e%2e/dashboard.py", "index.html", "main.css"]
)
def test_only_the_pages_own_files_are_served(client: httpx.Client, name: str) -> None:
    assert client.get(f"/assets/{dashboard.site().version}/{name}").status_code == 404


def test_files_of_another_version_are_not_found(client: httpx.Client) -> None:
    assert client.get("/assets/0123456789ab/main.js").status_code == 404


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_what_is_there_and_never_parse_markup(name: str) -> None:
    text = SOURCES[name].read_text(encoding="utf-8")
    assert text.startswith("// ")  # says what it is for
    for imported in re.findall(r'from "\./([^"]+)"', text):
        wanted = re.search(rf'import \{{([^}}]*)\}} from "\./{re.escape(imported)}"', text)
        offered = SOURCES[imported].read_text(encoding="utf-8")
        for each in wanted[1].split(",") if wanted else []:
            plain = each.split(" as ")[0].strip()
            assert re.search(rf"export (async )?(function|class|const|let) {plain}\b", offered), (
                f"{imported}: {plain}"
            )
            assert len(re.findall(rf"\b{each.split(' as ')[-1].strip()}\b", text)) > 1, f"{plain} is not used"
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(.style", text
    )


def test_every_script_is_reached_from_the_first_one() -> None:
    reached, ahead = set(), ["main.js"]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += re.findall(r'from "\./([^"]+)"', SOURCES[name].read_text(encoding="utf-8"))
    assert sorted(reached) == SCRIPTS
