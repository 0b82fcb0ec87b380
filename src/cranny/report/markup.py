"""Safe text for HTML and for data inside it, and the files that pages are made of."""

import html
import json
from collections.abc import Sequence
from importlib import resources


def file_text(name: str) -> str:
    """Read a file of this package."""
    return resources.files("cranny.report").joinpath(name).read_text(encoding="utf-8")


def text(value: object) -> str:
    """Escape a value for use as text or inside a quoted attribute."""
    return html.escape(str(value), quote=True)


def json_for_script(value: object) -> str:
    """Write JSON that no HTML parser can mistake for the end of its script element."""
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "plain", stack: bool = False) -> str:
    """Make a table of cells that are already HTML; with `stack` each names its column, for narrow screens."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    starts = [f'<td data-head="{name}">' if stack else "<td>" for name in head]
    body = "".join(
        f"<tr>{''.join(f'{start}{cell}</td>' for start, cell in zip(starts, row, strict=True))}</tr>"
        for row in rows
    )
    inside = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="{kind}">{inside}</table></div>'
