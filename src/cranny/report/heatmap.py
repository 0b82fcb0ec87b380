"""The heat map of a network: how full links and switch memory are, as cells, in words, and for a terminal.

On a terminal a machine is one character, or a rack where there are many racks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cranny.model.arrays import Floats
from cranny.model.validate import counted
from cranny.network.steady.link_load import FULL, Bottleneck, JobRate, Load
from cranny.report.table import MISSING

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

MAX_CELLS = 12_000  # for machines; beyond it a cell stands for several
MAX_BLOCKS = 2_000  # for racks; beyond it a block stands for several
NOTHING = 5e-4  # share that reads as 0 %
STEPS = (0.2, 0.4, 0.6, 0.8)  # shares at which a cell takes the next colour; the last two are for full
SIDES = ("uplink", "memory")  # what a rack has beside its machines
LEVELS = ("unused", "to 20 %", "to 40 %", "to 60 %", "to 80 %", "below full", "full", "full, holds jobs back")
HOLDS = len(LEVELS) - 1
JOBS_NAMED = 4
MANY_RACKS = 64  # more than this get a letter each
LINES = 100  # about; beyond it machines share letters
MOST_RACKS = 1_000  # more than this share letters
ROW_EDGES = 34  # letters that the rest of a row takes
GRID_EDGES = 6
# Marks rise with the load, so that they read without colours too; the second row is for terminals without Unicode.
MARKS = "·▁▂▃▅▆█!"
PLAIN_MARKS = ".-=+*%#!"
STYLES = ("dim", "blue", "blue", "cyan", "cyan", "bright_cyan", "bright_cyan", "bold white on red")


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One or several links, or the memory of switches: their mean share in use, and what to say about them."""

    share: float
    about: str
    holds_back: int = 0  # links that hold jobs back

    @property
    def level(self) -> int:
        """The colour, as an index into `LEVELS`."""
        return level(self.share, holds_back=self.holds_back > 0)


@dataclass(frozen=True, slots=True)
class HeatBlock:
    """A rack, or several: the uplinks of its machines, its own uplink, and the memory of its switch."""

    name: str
    machines: tuple[HeatCell, ...]
    uplink: HeatCell | None  # None where there is no link above
    memory: HeatCell | None  # None where the switch cannot aggregate

    def side(self, name: str) -> HeatCell | None:
        """Return the cell of one of `SIDES`."""
        return self.uplink if name == "uplink" else self.memory

    @property
    def about(self) -> str:
        """Everything about the block, a line each."""
        shares = [cell.share for cell in self.machines]
        full = sum(share >= FULL for share in shares)
        holding = sum(cell.holds_back for cell in self.machines)
        lines = [
            f"machines' uplinks: {_spread(np.array(shares))}{f', {_full(full, holding)}' if full else ''}",
            *(cell.about for cell in (self.uplink, self.memory) if cell is not None),
        ]
        return "\n".join([self.name, *lines])


def sides(made: Sequence[HeatBlock]) -> tuple[str, ...]:
    """Return those of `SIDES` that some block has."""
    return tuple(name for name in SIDES if any(block.side(name) for block in made))


def level(share: float, *, holds_back: bool = False) -> int:
    """Return the colour of a share, as an index into `LEVELS`; what is full may hold jobs back or not."""
    if share < NOTHING:
        return 0
    if share >= FULL:
        return HOLDS if holds_back else HOLDS - 1
    return 1 + sum(share > step for step in STEPS)


def percent(share: float) -> str:
    """Write a share; what is not quite full does not read as full."""
    if share >= FULL:
        return "100 %"
    return f"{min(share * 100, 99.0):.0f} %" if share == 0 or share >= 0.01 else "under 1 %"


def gbps(value: float) -> str:
    """Write a rate without its unit."""
    return f"{value:,.0f}" if value >= 100 or float(f"{value:.1f}").is_integer() else f"{value:,.1f}"


def blocks(load: Load, *, max_cells: int = MAX_CELLS, max_blocks: int = MAX_BLOCKS) -> list[HeatBlock]:
    """Return the heat map: a block for each rack, and one for links above racks where there are any."""
    cluster = load.cluster
    members: list[list[int]] = [[] for _ in cluster.rack_names]
    for machine, rack in enumerate(cluster.rack_of):
        members[rack].append(machine)
    in_cell = -(-len(cluster.machines) // max_cells)
    in_block = -(-len(members) // max_blocks)
    racks = [range(first, min(first + in_block, len(members))) for first in range(0, len(members), in_block)]
    made = [
        _block(load, group, [machine for rack in group for machine in members[rack]], in_cell) for group in racks
    ]
    known = {*range(len(cluster.machines)), *cluster.rack_nodes, cluster.root}
    above = [link for link in range(len(cluster.parent)) if link not in known]
    if above:
        made.append(HeatBlock("above racks", _cells(load, above, -(-len(above) // max_blocks)), None, None))
    return made


def _block(load: Load, racks: Sequence[int], machines: Sequence[int], in_cell: int) -> HeatBlock:
    cluster = load.cluster
    names, nodes = cluster.rack_names, [cluster.rack_nodes[rack] for rack in racks]
    up = [node for node in nodes if node != cluster.root]
    switches = [rack for rack in racks if load.pat_gbps[rack] > 0]
    memory = None
    if switches:
        used, pat = float(load.pat_used_gbps[switches].sum()), float(load.pat_gbps[switches].sum())
        users = counted(int(load.switch_jobs[switches].sum()), "job")
        about = f"switch memory: {percent(used / pat)}, {gbps(used)} of {gbps(pat)} Gbps PAT, {users}"
        memory = HeatCell(used / pat, about)
    return HeatBlock(
        names[racks[0]] if len(racks) == 1 else f"{names[racks[0]]} to {names[racks[-1]]}",
        _cells(load, machines, in_cell),
        _cells(load, up, len(up))[0] if up else None,
        memory,
    )


def _cells(load: Load, links: Sequence[int], in_cell: int) -> tuple[HeatCell, ...]:
    groups = (links[first : first + in_cell] for first in range(0, len(links), in_cell))
    return tuple(
        HeatCell(
            float(load.share[list(group)].mean()),
            _about(load, group),
            int(np.count_nonzero(load.holds_back[list(group)])),
        )
        for group in groups
    )


def _about(load: Load, links: Sequence[int]) -> str:
    """Say what is to know about a link, or about several."""
    cluster = load.cluster
    if len(links) > 1:
        shares = load.share[list(links)]
        full = int((shares >= FULL).sum())
        names = f"{cluster.link_name(links[0])} and {len(links) - 1} more"
        holding = int(np.count_nonzero(load.holds_back[list(links)]))
        return f"{names}: {_spread(shares)}, {_full(full, holding)}"
    (link,) = links
    carried = f"{gbps(load.link_gbps[link])} of {gbps(cluster.uplink_gbps[link])} Gbps"
    users = f"{counted(int(load.link_jobs[link]), 'job')}, {flows(float(load.link_flows[link]))}"
    text = f"{cluster.link_name(link)}: {percent(float(load.share[link]))}, {carried}, {users}"
    if load.share[link] < FULL:
        return text
    held = int(load.holds_back[link])
    return f"{text}; holds {counted(held, 'job') if held else 'no job'} back"


def _full(full: int, holding: int) -> str:
    """Say how many of some links are full, and how many of these hold jobs back."""
    if not holding:
        return f"{full:,} full"
    return f"{full:,} full, {holding:,} of them {'holds' if holding == 1 else 'hold'} jobs back"


def _spread(shares: Floats) -> str:
    return f"{percent(float(shares.mean()))} on average, {percent(float(shares.max()))} at most"


def flows(number: float) -> str:
    """Write a number of flows; shares of a flow come from collectives that use a link less than others."""
    return counted(round(number), "flow") if abs(number - round(number)) < 0.05 else f"{number:,.1f} flows"


def summary(load: Load) -> str:
    """Say in two sentences how full the network is and which jobs that slows."""
    if not load.jobs:
        return "No running job uses a link."
    links = len(load.cluster.parent) - 1
    back = [job for job in load.jobs if job.held_back]
    users = "1 running job uses" if len(load.jobs) == 1 else f"{len(load.jobs):,} running jobs use"
    text = f"{users} links; {len(load.full):,} of {counted(links, 'link')} are full"
    if not back:
        return f"{text}. Every job is as fast as it would be alone."
    share = sum(job.rate_gbps / job.alone_gbps for job in back) / len(back)
    slower = f"on average to {percent(share)} of their rate alone"
    holding = int((load.holds_back > 0).sum())
    some = "all" if holding == len(load.full) > 1 else f"{holding:,}"
    text = f"{text}, and {some} of these {'holds' if holding == 1 else 'hold'} jobs back."
    return f"{text} Sharing slows {counted(len(back), 'job')}: {slower}."


def worst(load: Load, top: int) -> Sequence[Bottleneck]:
    """Return the links that cost their jobs most, without those that cost nothing."""
    return [each for each in load.bottlenecks if any(job.held_back for job in each.held)][:top]


def held(jobs: Sequence[JobRate]) -> str:
    """Name the slowest of some jobs, with their rates and what they would have alone."""
    named = [
        f"{job.job_id} at {gbps(job.rate_gbps)} Gbps (alone {gbps(job.alone_gbps)})" for job in jobs[:JOBS_NAMED]
    ]
    rest = len(jobs) - len(named)
    return ", ".join([*named, f"and {rest:,} more"] if rest else named)


def line(load: Load, each: Bottleneck) -> str:
    """Say everything about a bottleneck in one line."""
    link = each.link
    carried = f"{gbps(load.link_gbps[link])} of {gbps(load.cluster.uplink_gbps[link])} Gbps"
    users = f"{flows(float(load.link_flows[link]))} of {counted(len(each.jobs), 'job')}"
    return f"{load.cluster.link_name(link)}: {carried}, {users}; holds {held(each.held)}"


def heat_table(load: Load, width: int, *, plain: bool = False) -> "Group":
    """Return the heat map for a terminal so many letters wide."""
    from rich.console import Group
    from rich.text import Text

    marks = PLAIN_MARKS if plain else MARKS
    key = Text("\n")
    for level, name in enumerate(LEVELS):
        key.append(marks[level], STYLES[level]).append(f" {name}   ")
    racks = len(load.cluster.rack_names)
    if racks > MANY_RACKS:
        made = blocks(load, max_blocks=MOST_RACKS)
        space = width - max(len(block.name) for block in made) - GRID_EDGES
        return Group(*_grids(made, max(10, min(space, 100) // 10 * 10), marks), key)
    across = max(8, width - ROW_EDGES)
    return Group(_rows(blocks(load, max_cells=across * LINES), across, marks), key)


def _mark(cells: Sequence[HeatCell | None], marks: str) -> "Text":
    """Draw cells as letters; a blank where there is none."""
    from rich.text import Text

    drawn = Text()
    for cell in cells:
        drawn.append(marks[cell.level] if cell else " ", STYLES[cell.level] if cell else "")
    return drawn


def _plain_table(*heads: str) -> "Table":
    """Make an empty table whose cells do not break."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1), show_edge=False)
    for head in heads:
        made.add_column(head, no_wrap=True)
    return made


def _rows(made: Sequence[HeatBlock], across: int, marks: str) -> "Table":
    """Make a row for each rack, with a letter for each machine."""
    from rich.text import Text

    beside = sides(made)
    shown = _plain_table("rack", "machines' uplinks", *beside)
    for block in made:
        cells = block.machines
        lines = Text("\n").join(_mark(cells[at : at + across], marks) for at in range(0, len(cells), across))
        values = (
            _mark([cell], marks).append(f" {percent(cell.share):>5}") if cell else Text(MISSING)
            for cell in map(block.side, beside)
        )
        shown.add_row(Text(block.name), lines, *values)
    return shown


def _grids(made: Sequence[HeatBlock], across: int, marks: str) -> "list[Text | Table]":
    """Make a grid of racks for each of: machines' uplinks, racks' uplinks, switch memory."""
    from rich.text import Text

    parts: dict[str, Sequence[HeatCell | None]] = {
        "machines' fullest uplinks": [
            max(block.machines, key=lambda cell: (cell.level, cell.share)) for block in made
        ],
        "racks' uplinks": [block.uplink for block in made],
        "switch memory": [block.memory for block in made],
    }
    grids: list[Text | Table] = []
    for title, cells in parts.items():
        if not any(cells):
            continue
        grid = _plain_table("from", title)
        for at in range(0, len(cells), across):
            grid.add_row(Text(made[at].name), _mark(cells[at : at + across], marks))
        grids += [Text(""), grid] if grids else [grid]
    return grids
