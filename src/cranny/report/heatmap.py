"""The heat map of a network: how full links and switch memory are, in as many cells as can be seen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cranny.core.flows import Floats
from cranny.model.validate import counted
from cranny.network.steady.link_load import FULL, Load

MAX_CELLS = 12_000  # for machines; beyond it a cell stands for several
MAX_BLOCKS = 2_000  # for racks; beyond it a block stands for several
NOTHING = 5e-4  # share that reads as 0 %
STEPS = (0.2, 0.4, 0.6, 0.8)  # shares at which a cell takes the next colour; the last two are for full
SIDES = ("uplink", "memory")  # what a rack has beside its machines
LEVELS = ("unused", "to 20 %", "to 40 %", "to 60 %", "to 80 %", "below full", "full", "full, holds jobs back")
HOLDS = len(LEVELS) - 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One or several links, or the memory of switches: their mean share in use, and what to say about them."""

    share: float
    about: str
    holds_back: int = 0  # links that hold jobs back

    @property
    def level(self) -> int:
        """The colour, as an index into `LEVELS`."""
        return level(self.share, holds_back=self.holds_back > 0)


@dataclass(frozen=True, slots=True)
class Block:
    """A rack, or several: the uplinks of its machines, its own uplink, and the memory of its switch."""

    name: str
    machines: tuple[Cell, ...]
    uplink: Cell | None  # None where there is no link above
    memory: Cell | None  # None where the switch cannot aggregate

    def side(self, name: str) -> Cell | None:
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


def sides(made: Sequence[Block]) -> tuple[str, ...]:
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


def blocks(load: Load, *, max_cells: int = MAX_CELLS, max_blocks: int = MAX_BLOCKS) -> list[Block]:
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
        made.append(Block("above racks", _cells(load, above, -(-len(above) // max_blocks)), None, None))
    return made


def _block(load: Load, racks: Sequence[int], machines: Sequence[int], in_cell: int) -> Block:
    cluster = load.cluster
    names, nodes = cluster.rack_names, [cluster.rack_nodes[rack] for rack in racks]
    up = [node for node in nodes if node != cluster.root]
    memory = [rack for rack in racks if load.pat_gbps[rack] > 0]
    return Block(
        names[racks[0]] if len(racks) == 1 else f"{names[racks[0]]} to {names[racks[-1]]}",
        _cells(load, machines, in_cell),
        _cells(load, up, len(up))[0] if up else None,
        _memory(load, memory) if memory else None,
    )


def _cells(load: Load, links: Sequence[int], in_cell: int) -> tuple[Cell, ...]:
    groups = (links[first : first + in_cell] for first in range(0, len(links), in_cell))
    return tuple(
        Cell(
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
    told = f"{cluster.link_name(link)}: {percent(float(load.share[link]))}, {carried}, {users}"
    if load.share[link] < FULL:
        return told
    held = int(load.holds_back[link])
    return f"{told}; holds {counted(held, 'job') if held else 'nobody'} back"


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


def _memory(load: Load, racks: Sequence[int]) -> Cell:
    used, pat = float(load.pat_used_gbps[list(racks)].sum()), float(load.pat_gbps[list(racks)].sum())
    jobs = counted(int(load.switch_jobs[list(racks)].sum()), "job")
    about = f"switch memory: {percent(used / pat)}, {gbps(used)} of {gbps(pat)} Gbps PAT, {jobs}"
    return Cell(used / pat, about)
