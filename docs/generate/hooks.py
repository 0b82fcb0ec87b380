"""Hooks of MkDocs: add the generated pages, and put the picture of the architecture into its page."""

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads this file by its path

from docs.generate import commands, layers, modules, notebooks, policy_table, python_names, rest  # noqa: E402

from benchmarks import history  # noqa: E402

PAGES = {
    "reference/benchmarks.md": lambda: history.page(history.read()),
    "reference/commands.md": commands.page,
    "reference/modules.md": modules.page,
    "reference/policies.md": policy_table.page,
    "reference/python.md": python_names.page,
    "reference/rest.md": rest.page,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code and from notebooks."""
    for uri, page in PAGES.items():
        files.append(File.generated(config, uri, content=page()))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        content = notebooks.page(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the picture of the layers where a page asks for it."""
    return markdown.replace("<!-- layers -->", layers.svg())
