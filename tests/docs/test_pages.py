"""The documents say what is so: their blocks run and print what they show, their links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from cranny.cli.console import out
from tests.docs.blocks import PAGES, ROOT, RUN, Block, agree, blocks, indented, page_of


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


RUNNABLE = [page for page in PAGES if any(not block.reason for block in blocks(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("path", RUNNABLE, ids=name_of)
def test_a_page_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", 100)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    page = page_of(tmp_path, monkeypatch.setenv)
    try:
        for block in blocks(path.read_text(encoding="utf-8")):
            try:
                page.run(block)
            except BaseException as error:
                error.add_note(f"{name_of(path)}, line {block.line}")
                raise
    finally:
        page.close()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_is_run_or_says_why_not(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert indented(text) == [], "fence it, with its language"
    for block in blocks(text):
        assert block.language, f"line {block.line} has no language"
        if block.language == "text":
            assert block.title or block.reason, f"line {block.line}: what prints it, or why is it not compared?"
        assert block.language not in {"bash", "shell", "pycon"}, f"line {block.line}: one of {RUN}"


LINK = re.compile(r"\]\(([^)\s]+)\)")
GENERATED = {"benchmarks", "commands", "modules", "policies", "python", "rest"}


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_to_files_that_exist(path: Path) -> None:
    for link in LINK.findall(re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)):
        target = link.partition("#")[0]
        if not target or target.startswith(("http://", "https://")):
            continue
        found = path.parent / target
        generated = found.parent.name == "reference" and found.stem in GENERATED
        notebook = found.with_suffix(".ipynb")
        assert found.exists() or generated or notebook.exists(), link


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_modules_that_pages_name_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    package = ROOT / "src" / "cranny"
    for dotted in re.findall(r"(?<![\w.])cranny((?:\.(?!md\b)[a-z_]\w*)+)", text):
        parts = dotted.strip(".").split(".")
        assert (
            (package / parts[0]).exists()
            or (package / f"{parts[0]}.py").exists()
            or parts[0] in (ROOT / "src" / "cranny" / "__init__.py").read_text(encoding="utf-8")
        ), f"cranny{dotted}"
        if (package / parts[0]).is_dir() and len(parts) > 1:
            second = package / parts[0] / parts[1]
            assert second.exists() or second.with_suffix(".py").exists(), f"cranny{dotted}"
    for named in re.findall(r"`(?:src/cranny/)?([a-z_]+(?:/[a-z_0-9]+)+(?:\.py)?)`", text):
        folder = named.partition("/")[0]
        if (package / folder).is_dir():
            assert (package / named).exists(), named
        elif folder in {"src", "tests", "docs", "benchmarks"}:
            assert (ROOT / named).exists(), named


def test_comparing_knows_what_may_be_anything() -> None:
    assert agree("a\nb 1\nc\n", "a\n...\nc")
    assert agree("a b c\n", "a ...")
    assert not agree("a 1\n", "a 2")
    assert not agree("a\nb\n", "a")
    assert agree("a  1,010.0 b\n", "a 1,000 b", 0.01)
    assert not agree("a 1,011 b\n", "a 1,000 b", 0.01)
    assert not agree("a 1 b\n", "a 1 c", 0.01)


def test_a_reason_above_a_block_belongs_to_it() -> None:
    found = list(blocks("<!-- not run: too long -->\n\n```sh\ncranny demo\n```\n\n```sh\ncranny policies\n```\n"))
    assert found == [
        Block(3, "sh", "", "cranny demo\n", "too long"),
        Block(7, "sh", "", "cranny policies\n", ""),
    ]


def test_indented_code_is_noticed() -> None:
    assert indented("text\n\n    code\n\n- item\n\n    of it\n") == [3]
