"""The network at a moment: its heat map as SVG, as a page of its own, and as a section of the report.

Colours come from `heat.css`, so that light and dark pages have their own.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np

from cranny.model.validate import counted
from cranny.network.steady.link_load import FULL, Load
from cranny.report.heatmap import (
    LEVELS,
    HeatBlock,
    HeatCell,
    blocks,
    flows,
    gbps,
    held,
    percent,
    sides,
    summary,
    worst,
)
from cranny.report.scales import duration_text
from cranny.report.shell import escape, file_text, html_page, html_section, html_table, svg, svg_text, write_file
from cranny.report.table import MISSING

WIDTH, HEIGHT = 1240.0, 560.0
SIZES = (34, 30, 26, 22, 18, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2)  # of a cell, the largest that fits
NAMED = 10  # size from which racks have their names beside them
HEADED = 18  # size from which columns have heads
NUMBERED = 26  # size from which cells have numbers
HOVER_CELLS = 1_500  # more cells than this answer by rack: a page with a text for each would be large
LETTER = 6.6  # width of a letter, about
HINT = (
    "One row a rack: its own uplink and, where switches aggregate, their memory, then the uplinks of its "
    "machines. Jobs on several machines send all the time and share links max-min fairly. Red links slow jobs "
    "down, compared with running alone; a full link that is not red may be filled by one job. Point at a cell "
    "for names and numbers."
)
TOP = 20  # bottlenecks on a page of its own
TOP_IN_REPORT = 5


class Layout(NamedTuple):
    """Where everything goes: cells of one size, racks below each other in one or more columns."""

    size: float
    gap: float
    pitch: float  # from one cell to the next
    label: float  # width of a rack's name; then comes its uplink, so that a narrow screen shows it too
    across: int  # cells in a line
    lines: int  # of cells, in the largest block
    wide: float  # a rack's uplink or memory
    sides: tuple[str, ...]  # which of these there are
    machines_at: float  # where a rack's machines begin
    block_width: float  # of a column of racks
    between: float  # columns of racks
    row_height: float  # from one rack to the one below; blocks of several lines keep apart
    rows: int
    head: float  # space for the heads of columns
    width: float  # of the whole picture
    height: float


def layout(blocks: Sequence[HeatBlock]) -> Layout:
    """Choose the largest cells with which everything fits."""
    most = max(len(block.machines) for block in blocks)
    beside = sides(blocks)
    longest = max(len(block.name) for block in blocks)
    for size in SIZES:
        gap = 2.0 if size >= 15 else 1.0 if size >= 4 else 0.0
        pitch = size + gap
        label = longest * LETTER + 10 if size >= NAMED else 0.0
        wide = max(2.0 * size, 50.0 if size >= HEADED else 0.0)
        all_wide = len(beside) * (wide + gap)
        across = max(1, min(most, int((WIDTH - label - size - all_wide) / pitch)))
        lines = math.ceil(most / across)
        across = math.ceil(most / lines)
        machines_at = label + all_wide + (max(3.0, size / 3) if all_wide else 0.0)
        block_width, between = machines_at + across * pitch, max(10.0, size)
        row_height = lines * pitch + (0.0 if lines == 1 else size)
        head = 0.0 if NAMED <= size < HEADED else 20.0
        columns = math.ceil(len(blocks) / max(1, int((HEIGHT - head) / row_height)))
        rows = math.ceil(len(blocks) / columns)
        width, height = max(columns * (block_width + between) - between, 120.0), head + rows * row_height
        if width <= WIDTH and height <= HEIGHT:
            break
    placed = machines_at, block_width, between, row_height, rows, head, width, height
    return Layout(size, gap, pitch, label, across, lines, wide, beside, *placed)


def heat_svg(blocks: Sequence[HeatBlock], label: str) -> str:
    """Draw the heat map; point at a cell or a rack for its numbers."""
    plan = layout(blocks)
    drawn: list[list[str]] = [[] for _ in LEVELS]  # a path for each colour keeps ten thousand cells small
    words: list[str] = []
    hits: list[str] = []
    by_cell = sum(len(block.machines) for block in blocks) <= HOVER_CELLS
    for index, block in enumerate(blocks):
        x = index // plan.rows * (plan.block_width + plan.between)
        y = plan.head + index % plan.rows * plan.row_height
        if index % plan.rows == 0 and plan.head:
            words += _heads(plan, x) if plan.label else [svg_text(x, 12, f"{block.name} …", "name")]
        if plan.label:
            words.append(svg_text(x, y + plan.size / 2 + 4, block.name, "name"))
        for cell, cell_x, cell_y, wide in _places(plan, block, x, y):
            drawn[cell.level].append(f"M{cell_x:g} {cell_y:g}h{wide:g}v{plan.size:g}h{-wide:g}z")
            if plan.size >= NUMBERED and cell.level:
                number = percent(cell.share).removesuffix(" %").replace("under ", "<")
                words.append(svg_text(cell_x + wide / 2, cell_y + plan.size / 2 + 4, number, f"t{cell.level}"))
            if by_cell:
                hits.append(_hit(cell_x, cell_y, wide, plan.size, cell.about))
        if not by_cell:
            hits.append(_hit(x, y, plan.block_width, plan.lines * plan.pitch, block.about))
    paths = "".join(f'<path class="h{level}" d="{"".join(d)}"/>' for level, d in enumerate(drawn) if d)
    content = f"{paths}{''.join(words)}{''.join(hits)}"
    return f'<div class="scroll">{svg(round(plan.width), round(plan.height), label, content, "heat")}</div>'


def legend() -> str:
    """Say what the colours mean."""
    marks = "".join(f'<span><i class="h{level}"></i>{escape(name)}</span>' for level, name in enumerate(LEVELS))
    return f'<p class="key heat-key">{marks}</p>'


def _places(plan: Layout, block: HeatBlock, x: float, y: float) -> Iterator[tuple[HeatCell, float, float, float]]:
    """Yield every cell of a block with its corner and its width."""
    for index, cell in enumerate(block.machines):
        across, down = index % plan.across, index // plan.across
        yield cell, x + plan.machines_at + across * plan.pitch, y + down * plan.pitch, plan.size
    for index, name in enumerate(plan.sides):
        side = block.side(name)
        if side is not None:
            yield side, x + plan.label + index * (plan.wide + plan.gap), y, plan.wide


def _heads(plan: Layout, x: float) -> list[str]:
    """Write over each column what it is."""
    machines = "machines' uplinks" if plan.across * plan.pitch > 100 else "machines"
    at = {plan.machines_at: machines}
    at |= {plan.label + index * (plan.wide + plan.gap): name for index, name in enumerate(plan.sides)}
    return [svg_text(x + offset, 12, name, "name") for offset, name in at.items()]


def _hit(x: float, y: float, wide: float, high: float, about: str) -> str:
    """Lay a clear rectangle over a cell, for the text that shows when one points at it."""
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}"><title>{escape(about)}</title></rect>'


def heat_map(load: Load) -> str:
    """Draw the heat map of a network."""
    return heat_svg(blocks(load), f"Heat map of the network. {summary(load)}")


def write_page(load: Load, path: str | Path, *, title: str, kicker: str, command: str) -> Path:
    """Write the network at a moment to one HTML file that loads nothing from anywhere."""
    main = Template(file_text("network.html")).substitute(
        hint=escape(HINT),
        map=heat_map(load),
        legend=legend(),
        links=links_html(load, TOP),
        racks=_racks_html(load),
        command=escape(command),
    )
    return write_file(html_page(title, summary(load), main, style=file_text("heat.css"), kicker=kicker), path)


def section(loads: Mapping[str, Load], since_s: float) -> str:
    """Make the report's section about runs that recorded link load, by their names; nothing without any."""
    if not loads:
        return ""
    cards = "".join(
        f'<figure class="card network"><figcaption><strong>{escape(name)}</strong></figcaption>'
        f'<p class="readout">{escape(summary(load))}</p>{heat_map(load)}{legend()}'
        f"<details><summary>Links that hold jobs back</summary>"
        f'<div class="prose">{links_html(load, TOP_IN_REPORT)}</div></details></figure>'
        for name, load in loads.items()
    )
    when = f"{duration_text(max(since_s, 0.0))} after the first arrival, when the map above opens"
    hint = f"How full links are {when}. {HINT}"
    return html_section("network", "The network at one moment", f'<div class="stack">{cards}</div>', hint)


def links_html(load: Load, top: int) -> str:
    """Make a table of the links that hold jobs back, with the slowest of these jobs."""
    shown = worst(load, top)
    if not shown:
        return "<p>None: every job is as fast as it would be alone.</p>"
    rows = [
        [
            escape(load.cluster.link_name(each.link)),
            f"{gbps(load.cluster.uplink_gbps[each.link])} Gbps",
            escape(flows(float(load.link_flows[each.link]))),
            counted(len(each.jobs), "job"),
            f"{gbps(each.lost_gbps)} Gbps",
            escape(held(each.held)),
        ]
        for each in shown
    ]
    return html_table(
        ["full link", "carries", "in", "of", "costs its jobs", "holds"], rows, kind="plain links", stack=True
    )


def _racks_html(load: Load) -> str:
    """Make a table of racks, for readers without a picture."""
    rows = []
    for block in blocks(load):
        shares = np.array([cell.share for cell in block.machines])
        beside = (percent(cell.share) if cell is not None else MISSING for cell in (block.uplink, block.memory))
        rows.append(
            [
                escape(block.name),
                percent(float(shares.mean())),
                percent(float(shares.max())),
                f"{(shares >= FULL).sum()} of {len(shares)}",
                f"{sum(cell.holds_back for cell in block.machines):,}",
                *beside,
            ]
        )
    head: Sequence[str] = [
        "rack", "machines' uplinks, mean", "highest", "full", "hold jobs back", "rack's uplink", "switch memory"
    ]  # fmt: skip
    return html_table(head, rows, kind="plain figures")
