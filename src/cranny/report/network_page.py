"""The network at a moment as a page of its own, and as a section of the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

import numpy as np

from cranny.model.validate import counted
from cranny.network.steady.link_load import FULL, Load
from cranny.report.heatmap import blocks, flows, gbps, held, percent, summary, worst
from cranny.report.heatmap_svg import heat_svg, legend
from cranny.report.scales import duration_text
from cranny.report.shell import escape, file_text, html_page, html_table, write_file
from cranny.report.table import MISSING

HINT = (
    "One row a rack: its own uplink and, where switches aggregate, their memory, then the uplinks of its "
    "machines. Jobs on several machines send all the time and share links max-min fairly. Red links slow jobs "
    "down, compared with running alone; a full link that is not red may be filled by one job. Point at a cell "
    "for names and numbers."
)
TOP = 20  # bottlenecks on a page of its own
TOP_IN_REPORT = 5


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
    return (
        '<section id="network" aria-labelledby="network-head"><h2 id="network-head">The network at one moment</h2>'
        f'<p class="hint">{escape(f"How full links are {when}. {HINT}")}</p>'
        f'<div class="stack">{cards}</div></section>'
    )


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
        sides = (percent(cell.share) if cell is not None else MISSING for cell in (block.uplink, block.memory))
        rows.append(
            [
                escape(block.name),
                percent(float(shares.mean())),
                percent(float(shares.max())),
                f"{(shares >= FULL).sum()} of {len(shares)}",
                f"{sum(cell.holds_back for cell in block.machines):,}",
                *sides,
            ]
        )
    head: Sequence[str] = [
        "rack", "machines' uplinks, mean", "highest", "full", "hold jobs back", "rack's uplink", "switch memory"
    ]  # fmt: skip
    return html_table(head, rows, kind="plain figures")
