"""What a log of Philly says, attempt by attempt, in plain Python: no code of the readers, no tables.

An attempt without a start did not run. One without an end ended when its job is next heard of, in the attempts
after it; if there is nothing after it, and its job is over, it cannot be counted.
"""

from datetime import datetime
from typing import Any, NamedTuple

from tests.reference.log_truth import HOUR_S, covered_s


class Attempt(NamedTuple):
    """An attempt that ran."""

    job: str
    queued_s: float
    start_s: float
    end_s: float
    held: dict[str, int]  # machine -> GPUs


class PhillyTruth(NamedTuple):
    """The numbers of a log."""

    attempts: int
    gpu_hours: float
    mean_wait_s: float
    machine_hours: float
    machines: int


def seconds(text: object) -> float | None:
    """Read a time of the log."""
    if text in (None, "", "None"):
        return None
    return (datetime.strptime(str(text), "%Y-%m-%d %H:%M:%S") - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001, DTZ007


def attempts(entries: list[dict[str, Any]]) -> list[Attempt]:
    """Return all attempts that ran."""
    found = []
    for entry in entries:
        queued_s = seconds(entry["submitted_time"])
        assert queued_s is not None
        for place, attempt in enumerate(entry["attempts"]):
            start_s, end_s = seconds(attempt["start_time"]), seconds(attempt["end_time"])
            if start_s is not None and end_s is None:
                for later in entry["attempts"][place + 1 :]:
                    heard = [seconds(later["start_time"]), seconds(later["end_time"])]
                    if heard != [None, None]:
                        end_s = heard[0] if heard[0] is not None else heard[1]
                        break
            if start_s is not None and end_s is not None:
                held: dict[str, int] = {}
                for machine in attempt["detail"]:
                    held[machine["ip"]] = held.get(machine["ip"], 0) + len(machine["gpus"])
                found.append(Attempt(entry["jobid"], min(queued_s, start_s), start_s, end_s, held))
            if end_s is not None:
                queued_s = end_s
    return found


def truth(entries: list[dict[str, Any]]) -> PhillyTruth:
    """Work out the numbers of a log."""
    ran = attempts(entries)
    busy: dict[str, list[tuple[float, float]]] = {}
    for each in ran:
        for machine in each.held:
            busy.setdefault(machine, []).append((each.start_s, each.end_s))
    return PhillyTruth(
        attempts=len(ran),
        gpu_hours=sum(sum(each.held.values()) * (each.end_s - each.start_s) for each in ran) / HOUR_S,
        mean_wait_s=sum(each.start_s - each.queued_s for each in ran) / len(ran),
        machine_hours=sum(covered_s(intervals) for intervals in busy.values()) / HOUR_S,
        machines=len(busy),
    )
