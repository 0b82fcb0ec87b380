"""A chart of a few rows of text."""

from collections.abc import Sequence

from cranny.report.scales import count_axis, time_axis

BLOCKS = " ▁▂▃▄▅▆▇█"


def chart(values: Sequence[float], span_s: float, height: int = 8) -> list[str]:
    """Draw one bar a value over the time that they span, with an axis of numbers and one of time."""
    axis = count_axis(values)
    # The row, from the bottom, in which a bar as high as the tick ends.
    label_of = {max(round(axis.share(at) * height) - 1, 0): label for at, label in axis.ticks if at > 0}
    width = max(len(label) for label in (*label_of.values(), "0"))
    eighths = [round(axis.share(value) * height * 8) for value in values]
    lines = []
    for row in reversed(range(height)):
        bar = "".join(BLOCKS[min(max(high - 8 * row, 0), 8)] for high in eighths)
        lines.append(f"{label_of.get(row, ''):>{width}} {'┤' if row in label_of else '│'}{bar}".rstrip())
    times = time_axis(0.0, span_s)
    rule = ["─"] * len(values)
    words = ""
    for at, label in times.ticks:
        column = int(times.share(at) * len(values))
        if column == len(values):
            break
        rule[column] = "┴"
        if column >= len(words):
            words = words.ljust(column) + label + " "
    return [*lines, f"{'0':>{width}} └{''.join(rule)}", f"{'':>{width}}  {words.rstrip()}"]
