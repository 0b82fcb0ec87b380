"""The HTML shell of all pages, and what fills it: escaped text, tables, and the files of this package.

A page is one HTML file that states its result first and loads nothing from anywhere.
"""

import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template

from cranny.version import VERSION


def file_text(name: str) -> str:
    """Read a file of this package."""
    return resources.files("cranny.report").joinpath(name).read_text(encoding="utf-8")


def escape(value: object) -> str:
    """Escape a value for use as text or inside a quoted attribute."""
    return html.escape(str(value), quote=True)


def svg_text(x: float, y: float, words: str, kind: str) -> str:
    """Make a text element of a picture."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def svg(width: float, height: float, label: str, content: str, kind: str = "", more: str = "") -> str:
    """Make a picture of its own, with a label for screen readers; `more` are further attributes."""
    of_kind = f' class="{kind}"' if kind else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{of_kind} viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(label)}"{more}>{content}</svg>'
    )


def json_for_script(value: object) -> str:
    """Write JSON that no HTML parser can mistake for the end of its script element."""
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "plain", stack: bool = False
) -> str:
    """Make a table of cells that are already HTML; with `stack` each names its column, for narrow screens."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    starts = [f'<td data-head="{name}">' if stack else "<td>" for name in head]
    body = "".join(
        f"<tr>{''.join(f'{start}{cell}</td>' for start, cell in zip(starts, row, strict=True))}</tr>"
        for row in rows
    )
    inside = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="{kind}">{inside}</table></div>'


def unbroken(text: str) -> str:
    """Make a text HTML whose lines break between words only, not after hyphens, as in 2-7."""
    return " ".join(f'<span class="word">{escape(word)}</span>' for word in text.split(" ")) if text else ""


def html_section(name: str, head: str, content: str, hint: str = "") -> str:
    """Make a section of a page; `content` is HTML."""
    about = f'<p class="hint">{escape(hint)}</p>' if hint else ""
    return (
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{escape(head)}</h2>'
        f"{about}{content}</section>"
    )


def html_page(
    title: str,
    finding: str,
    main: str,
    *,
    style: str = "",
    kicker: str = "",
    caution: str = "",
    allowed: str = "",
    scripts: str = "",
    version: str = VERSION,
) -> str:
    """Return a page; `main` and `scripts` are HTML, and `allowed` is what its policy allows beyond styles."""
    return Template(file_text("shell.html")).substitute(
        title=escape(title),
        finding=_unbroken(escape(finding)),
        main=main,
        style=file_text("page.css") + style,
        kicker=f'<p class="kicker">{escape(kicker)}</p>\n' if kicker else "",
        caution=f'<p class="caution">{_unbroken(escape(caution))}</p>\n' if caution else "",
        allowed=f"; {allowed}" if allowed else "",
        scripts=scripts,
        version=escape(version),
    )


def _unbroken(words: str) -> str:
    """Keep numbers and their per cent signs in one line."""
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", words)


def write_file(page: str, path: str | Path) -> Path:
    """Write a page or a picture to a file, and create its folder if there is none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", newline="\n")
    return path
