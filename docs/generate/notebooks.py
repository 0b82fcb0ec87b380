"""Notebooks as pages: cells and the outputs that are stored with them."""

import json
from pathlib import Path
from typing import Any

from docs.generate.markdown import fence


def page(notebook: Path) -> str:
    """Return a notebook as Markdown, with a link to the file itself."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    first, *rest = [_cell(cell) for cell in cells]
    link = f"[This page is a notebook]({notebook.name}): open it in Jupyter to change and run it.\n"
    return "\n".join([first, link, *rest])


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source + "\n"
    return "\n".join([fence("python", source), *(_output(each) for each in cell["outputs"])])


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return fence("text", "".join(output["text"]))
    data = output["data"]
    if "image/svg+xml" in data:
        return "".join(data["image/svg+xml"]) + "\n"
    return fence("text", "".join(data["text/plain"]))
