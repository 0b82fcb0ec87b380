"""Waits by week or day, added up job by job."""

from collections.abc import Mapping, Sequence


def sums_by_block(
    submit_s: Mapping[str, float], wait_s: Mapping[str, float], window: tuple[float, float], length_s: float
) -> list[tuple[int, float]]:
    """Return jobs and seconds of each block; jobs before the window count in its first, later ones in its last."""
    blocks: list[tuple[float, float]] = []
    at_s = window[0]
    while at_s < window[1]:
        blocks.append((at_s, at_s + length_s))
        at_s += length_s
    found = [(0, 0.0)] * len(blocks)
    for job, waited_s in wait_s.items():
        place = place_of(submit_s[job], blocks)
        found[place] = (found[place][0] + 1, found[place][1] + waited_s)
    return found


def place_of(at_s: float, blocks: Sequence[tuple[float, float]]) -> int:
    for place, (start_s, end_s) in enumerate(blocks):
        if start_s <= at_s < end_s:
            return place
    return 0 if at_s < blocks[0][0] else len(blocks) - 1
