"""How long a job waits for a reservation, second by second: whole seconds only, and no tables."""

from typing import NamedTuple


class Held(NamedTuple):
    """GPUs that a job holds for a while."""

    submit_s: int
    start_s: int
    end_s: int
    gpus: int


def wait_s(held: list[Held], gpus: int, size: int, now_s: int) -> int:
    """Return the wait of a job of `size` GPUs from `now_s`: until enough are free of jobs before it for good."""
    ahead = [each for each in held if each.submit_s <= now_s]
    last_s = max([now_s, *(each.end_s for each in ahead)])
    for start_s in range(now_s, last_s + 1):
        taken = (
            sum(each.gpus for each in ahead if each.start_s <= second < each.end_s)
            for second in range(start_s, last_s + 1)
        )
        if all(each + size <= gpus for each in taken):
            return start_s - now_s
    raise AssertionError("a job that is no larger than the cluster starts at last")
