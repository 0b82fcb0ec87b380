"""The page of a reproduction: what holds in words, then tables and pictures; it loads nothing from anywhere."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from cranny.report.shell import escape, html_page, write_file
from cranny.report.text_table import TextTable, text_table_html

STYLE = """
.claims { display: grid; gap: 14px; margin-top: 12px; }
.claims article { padding: 14px 18px; }
.claims h3 { margin: 0 0 4px; }
.claims p { max-width: 78em; }
.tag { float: right; margin-left: 16px; padding: 1px 10px; border: 1px solid; border-radius: 99px; }
.tag { color: var(--soft); font-size: 13px; }
.tag.good { color: #008a60; } .tag.part { color: #b07800; } .tag.bad { color: #c8392f; }
figure.card { margin-bottom: 16px; padding: 14px 16px; }
/* narrower than this their letters cannot be read: small screens scroll sideways within the card */
figure img { display: block; width: 100%; min-width: 760px; max-width: 980px; height: auto; background: #fff; }
@media (prefers-color-scheme: dark) {
  .tag.good { color: #27b88c; } .tag.part { color: #f0b93a; } .tag.bad { color: #ff7f6b; }
  /* white becomes the colour of the card, and colours keep their hue */
  figure img { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; }
}
.facts { margin: 0; padding-left: 20px; } .facts li { max-width: 78em; }
"""

MAIN = """<section aria-labelledby="claims"><h2 id="claims">What holds and what does not</h2>
<div class="claims">$claims</div></section>
$sections
<section aria-labelledby="facts"><h2 id="facts">How this was done</h2>
<div class="card prose"><ul class="facts">$facts</ul></div></section>
"""


@dataclass(frozen=True, slots=True)
class Told:
    """One paragraph about one claim, and a tag that says whether it holds."""

    title: str
    tag: str
    kind: str  # good, part, bad or other: the colour of the tag
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with tables, pictures or both."""

    title: str
    sheets: Sequence[TextTable] = ()
    pictures: Sequence[Path] = ()


def write_page(
    path: Path, title: str, lead: str, told: Iterable[Told], sections: Iterable[Section], facts: Iterable[str]
) -> Path:
    """Write the page to one file."""
    main = Template(MAIN).substitute(
        claims="".join(map(_claim, told)),
        sections="".join(_section(number, each) for number, each in enumerate(sections)),
        facts="".join(f"<li>{escape(fact)}</li>" for fact in facts),
    )
    return write_file(html_page(title, lead, main, style=STYLE, allowed="img-src data:"), path)


def _claim(told: Told) -> str:
    return (
        f'<article class="card"><span class="tag {told.kind}">{escape(told.tag)}</span>'
        f"<h3>{escape(told.title)}</h3><p>{escape(told.text)}</p></article>"
    )


def _section(number: int, section: Section) -> str:
    pictures = "".join(_picture(path) for path in section.pictures)
    tables = "".join(map(text_table_html, section.sheets))
    shown = f'<div class="card prose">{tables}</div>' if tables else ""
    return (
        f'<section aria-labelledby="part-{number}"><h2 id="part-{number}">{escape(section.title)}</h2>'
        f"{pictures}{shown}</section>"
    )


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    image = f'<img alt="{escape(path.stem)}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure class="card"><div class="scroll">{image}</div></figure>'
