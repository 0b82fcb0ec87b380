"""The heat map of a network for a terminal: a letter a machine, or a letter a rack where there are many racks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cranny.network.steady.link_load import Load
from cranny.report.heatmap import LEVELS, Block, Cell, blocks, percent, sides
from cranny.report.table import MISSING

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

MANY_RACKS = 64  # more than this get a letter each
LINES = 100  # about; beyond it machines share letters
MOST_RACKS = 1_000  # more than this share letters
ROOM = 34  # letters that the rest of a row takes
GRID_EDGES = 6
# Marks rise with the load, so that they read without colours too; the second row is for terminals without Unicode.
MARKS = "·▁▂▃▅▆█!"
PLAIN_MARKS = ".-=+*%#!"
STYLES = ("dim", "blue", "blue", "cyan", "cyan", "bright_cyan", "bright_cyan", "bold white on red")


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
        room = width - max(len(block.name) for block in made) - GRID_EDGES
        return Group(*_grids(made, max(10, min(room, 100) // 10 * 10), marks), key)
    across = max(8, width - ROOM)
    return Group(_rows(blocks(load, max_cells=across * LINES), across, marks), key)


def _mark(cells: Sequence[Cell | None], marks: str) -> "Text":
    """Draw cells as letters; a blank where there is none."""
    from rich.text import Text

    drawn = Text()
    for cell in cells:
        drawn.append(marks[cell.level] if cell else " ", STYLES[cell.level] if cell else "")
    return drawn


def _rows(made: Sequence[Block], across: int, marks: str) -> "Table":
    """Make a row for each rack, with a letter for each machine."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1), show_edge=False)
    shown.add_column("rack", no_wrap=True)
    shown.add_column("machines' uplinks", no_wrap=True)
    beside = sides(made)
    for name in beside:
        shown.add_column(name, no_wrap=True)
    for block in made:
        cells = block.machines
        lines = Text("\n").join(_mark(cells[at : at + across], marks) for at in range(0, len(cells), across))
        values = (
            _mark([cell], marks).append(f" {percent(cell.share):>5}") if cell else Text(MISSING)
            for cell in map(block.side, beside)
        )
        shown.add_row(Text(block.name), lines, *values)
    return shown


def _grids(made: Sequence[Block], across: int, marks: str) -> "list[Text | Table]":
    """Make a grid of racks for each of: machines' uplinks, racks' uplinks, switch memory."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    parts: dict[str, Sequence[Cell | None]] = {
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
        grid = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1), show_edge=False)
        grid.add_column("from", no_wrap=True)
        grid.add_column(title, no_wrap=True)
        for at in range(0, len(cells), across):
            grid.add_row(Text(made[at].name), _mark(cells[at : at + across], marks))
        grids += [Text(""), grid] if grids else [grid]
    return grids
