"""Notebooks: running their cells in order as Jupyter does, without a server.

`python -m tests.docs.notebook FILE...` runs notebooks and stores what their cells return and print now.
"""

import ast
import io
import json
import os
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def outputs(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Run a notebook in the current folder; return the outputs of each of its code cells."""
    names: dict[str, Any] = {"__name__": "notebook"}
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [_run("".join(cell["source"]), number, names) for number, cell in enumerate(codes, 1)]


def _run(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; its last expression, if it has a value, is shown after what it prints."""
    *statements, last = ast.parse(source).body
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)  # noqa: S102
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
        else:
            exec(compile(ast.Module([*statements, last], []), "cell", "exec"), names)  # noqa: S102
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        found.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def write(path: Path) -> None:
    """Run a notebook and store its outputs."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        found = outputs(notebook)
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, shown) in enumerate(zip(codes, found, strict=True), 1):
        cell["outputs"], cell["execution_count"] = shown, number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["POLARS_FMT_MAX_COLS"] = "20"
    for name in sys.argv[1:]:
        write(Path(name).resolve())
