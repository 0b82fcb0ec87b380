"""The reference of the packages and modules, from their docstrings."""

import ast
from pathlib import Path

from docs.generate.markdown import table

import cranny

SOURCE = Path(cranny.__file__).parent
INTRODUCTION = """# Modules

Every package with its docstring, which says what is in it and what must not be, and every module with the first
sentence of its own. [Architecture](../understand/architecture.md) has the picture.
"""


def page() -> str:
    """Return the page: one section a package, one row a module."""
    packages = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
    return "\n".join([INTRODUCTION, *(_package(folder) for folder in packages)])


def _package(folder: Path) -> str:
    name = _dotted(folder)
    rows = [
        (f"`{path.stem}`{{#{_dotted(path.with_suffix(''))}}}", _docstring(path).splitlines()[0])
        for path in sorted(folder.glob("*.py"))
        if path.stem != "__init__"
    ]
    text = _docstring(folder / "__init__.py")
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    parts = [f"## `{name}` {{#{name}}}\n", prose + "\n"]
    return "\n".join([*parts, table(("module", "what it is"), rows) if rows else ""])


def _dotted(path: Path) -> str:
    return ".".join(("cranny", *path.relative_to(SOURCE).parts))


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
