"""The frame of all pages: each is one HTML file that says what was found first and loads nothing from anywhere."""

import re
from pathlib import Path
from string import Template

from cranny.report.markup import file_text, text
from cranny.version import VERSION


def frame(
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
    return Template(file_text("frame.html")).substitute(
        title=text(title),
        finding=_unbroken(text(finding)),
        main=main,
        style=file_text("page.css") + style,
        kicker=f'<p class="kicker">{text(kicker)}</p>\n' if kicker else "",
        caution=f'<p class="caution">{_unbroken(text(caution))}</p>\n' if caution else "",
        allowed=f"; {allowed}" if allowed else "",
        scripts=scripts,
        version=text(version),
    )


def _unbroken(words: str) -> str:
    """Keep numbers and their per cent signs in one line."""
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", words)


def write(page: str, path: str | Path) -> Path:
    """Write a page to a file, in a folder that need not be there."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", newline="\n")
    return path
