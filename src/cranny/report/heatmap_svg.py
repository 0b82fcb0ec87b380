"""The heat map of a network as SVG; colours come from `heat.css`, so that light and dark pages have their own."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cranny.report.heatmap import LEVELS, HeatBlock, HeatCell, percent, sides
from cranny.report.shell import escape, svg_text

WIDTH, HEIGHT = 1240.0, 560.0
SIZES = (34, 30, 26, 22, 18, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2)  # of a cell, the largest that fits
NAMED = 10  # size from which racks have their names beside them
HEADED = 18  # size from which columns have heads
NUMBERED = 26  # size from which cells have numbers
HOVER_CELLS = 1_500  # more cells than this answer by rack: a page with a text for each would be large
LETTER = 6.6  # width of a letter, about


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes: cells of one size, racks below each other in one or more columns."""

    size: float
    gap: float
    label: float  # width of a rack's name
    across: int  # cells in a line
    lines: int  # of cells, in the largest block
    wide: float  # a rack's uplink or memory
    sides: tuple[str, ...]  # which of these there are
    columns: int
    rows: int

    @property
    def pitch(self) -> float:
        """From one cell to the next."""
        return self.size + self.gap

    @property
    def sides_at(self) -> float:
        """Where a rack's uplink begins: before the machines, so that a narrow screen shows it too."""
        return self.label

    @property
    def machines_at(self) -> float:
        """Where a rack's machines begin."""
        beside = len(self.sides) * (self.wide + self.gap)
        return self.sides_at + beside + (max(3.0, self.size / 3) if beside else 0.0)

    @property
    def block_width(self) -> float:
        """From one column of racks to the next, without the space between."""
        return self.machines_at + self.across * self.pitch

    @property
    def between(self) -> float:
        """Space between columns of racks."""
        return max(10.0, self.size)

    @property
    def row_height(self) -> float:
        """From one rack to the one below; blocks of several lines keep apart."""
        return self.lines * self.pitch + (0.0 if self.lines == 1 else self.size)

    @property
    def head(self) -> float:
        """Space for the heads of columns."""
        return 0.0 if NAMED <= self.size < HEADED else 20.0

    @property
    def width(self) -> float:
        """Of the whole picture."""
        return max(self.columns * (self.block_width + self.between) - self.between, 120.0)

    @property
    def height(self) -> float:
        """Of the whole picture."""
        return self.head + self.rows * self.row_height


def layout(blocks: Sequence[HeatBlock]) -> Layout:
    """Choose the largest cells with which everything fits."""
    most = max(len(block.machines) for block in blocks)
    beside = sides(blocks)
    longest = max(len(block.name) for block in blocks)
    for size in SIZES:
        gap = 2.0 if size >= 15 else 1.0 if size >= 4 else 0.0
        label = longest * LETTER + 10 if size >= NAMED else 0.0
        wide = max(2.0 * size, 50.0 if size >= HEADED else 0.0)
        space = WIDTH - label - size - len(beside) * (wide + gap)
        across = max(1, min(most, int(space / (size + gap))))
        lines = math.ceil(most / across)
        across = math.ceil(most / lines)
        made = Layout(size, gap, label, across, lines, wide, beside, 1, len(blocks))
        fit = max(1, int((HEIGHT - made.head) / made.row_height))
        columns = math.ceil(len(blocks) / fit)
        made = replace(made, columns=columns, rows=math.ceil(len(blocks) / columns))
        if made.width <= WIDTH and made.height <= HEIGHT:
            break
    return made


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
    size = f'viewBox="0 0 {plan.width:.0f} {plan.height:.0f}" width="{plan.width:.0f}" height="{plan.height:.0f}"'
    return (
        f'<div class="scroll"><svg xmlns="http://www.w3.org/2000/svg" class="heat" {size} role="img" '
        f'aria-label="{escape(label)}">{paths}{"".join(words)}{"".join(hits)}</svg></div>'
    )


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
            yield side, x + plan.sides_at + index * (plan.wide + plan.gap), y, plan.wide


def _heads(plan: Layout, x: float) -> list[str]:
    """Write over each column what it is."""
    machines = "machines' uplinks" if plan.across * plan.pitch > 100 else "machines"
    at = {plan.machines_at: machines}
    at |= {plan.sides_at + index * (plan.wide + plan.gap): name for index, name in enumerate(plan.sides)}
    return [svg_text(x + offset, 12, name, "name") for offset, name in at.items()]


def _hit(x: float, y: float, wide: float, high: float, about: str) -> str:
    """Lay a clear rectangle over a cell, for the text that shows when one points at it."""
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}"><title>{escape(about)}</title></rect>'
