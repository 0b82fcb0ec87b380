"""The site builds without a warning, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="(https?:)?//[^"]*"')
EXTERNAL = re.compile(r"\]\((https?://[^)\s]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert built.stdout + built.stderr == ""
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES) - 2  # README and CONTRIBUTING are no pages of the site
    for page in pages:
        found = LOADED.search(page.read_text(encoding="utf-8"))
        assert found is None, f"{page.relative_to(site)}: {found}"


def test_the_reference_has_every_command_and_public_name(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert all(f"cranny {name}" in commands for name in ("what-if", "traces inspect", "repro titan", "serve"))
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in python for name in ("cluster", "job", "simulate", "placementerror"))
    rest = (site / "reference" / "rest.html").read_text(encoding="utf-8")
    assert 'id="post-api-v1-jobs"' in rest


def test_external_links_are_few_and_known() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / "CHANGELOG.md"])
    assert set(EXTERNAL.findall(text)) == {"https://keepachangelog.com/en/1.1.0/", "https://semver.org/"}
