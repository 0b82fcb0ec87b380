"""The pods of one job: when and where they ran, and how many GPUs they held at once."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from cranny.traces.readers.kubernetes_gpus import Gpus


class Pod(NamedTuple):
    """When a pod ran, and with what."""

    gpus: Gpus
    created_s: float | None
    start_s: float | None
    end_s: float | None
    machine: str | None


def joined(pods: Sequence[Pod], at_once: Sequence[Pod]) -> dict[str, object]:
    """Put pods together to one job; `at_once` are those that held the most GPUs at once."""
    started = [pod for pod in pods if pod.start_s is not None]
    gpus, held = (sum(each) for each in zip(*(pod.gpus for pod in at_once), strict=True))
    ends = [pod.end_s for pod in started]
    return {
        "submit_s": known_s(pod.created_s for pod in pods),
        "start_s": known_s(pod.start_s for pod in started),
        "end_s": None if None in ends else known_s(ends, last=True),
        "gpus": gpus,
        "gpu_fraction": held / gpus if 0 < held < gpus else None,
        "machines": float(len({pod.machine or (place,) for place, pod in enumerate(at_once)})),
        "ran_on": _ran_on(at_once) if started else None,
    }


def _ran_on(pods: Sequence[Pod]) -> str | None:
    """Write the machines with the GPUs that pods held there; nothing if a pod does not name its own."""
    held: dict[str, float] = {}
    for pod in pods:
        if pod.machine is None or set(pod.machine) & set(" :"):
            return None
        held[pod.machine] = held.get(pod.machine, 0.0) + pod.gpus.asked
    if not all(gpus.is_integer() for gpus in held.values()):
        return None
    return " ".join(f"{machine}:{gpus:.0f}" for machine, gpus in held.items() if gpus) or None


def attempts(pods: Sequence[Pod]) -> list[list[int]]:
    """Divide the pods of a job where all had ended before the next one started; those without a start are last.

    One that does not say when it ended runs on.
    """
    started = sorted((pod.start_s, at) for at, pod in enumerate(pods) if pod.start_s is not None)
    parts: list[list[int]] = []
    until_s = -math.inf
    for start_s, at in started:
        end_s = pods[at].end_s
        if not parts or start_s >= until_s:
            parts.append([])
        parts[-1].append(at)
        until_s = max(until_s, math.inf if end_s is None or math.isnan(end_s) else end_s)
    waiting = [at for at, pod in enumerate(pods) if pod.start_s is None]
    return [*parts[:-1], [*parts[-1], *waiting]] if parts else [waiting]


def most_at_once(every: Sequence[Pod]) -> list[Pod]:
    """Return the pods that ran when they held the most GPUs, on the most machines; one without an end runs on.

    If none has started, all count.
    """
    running: list[tuple[float, int]] = []  # ends, soonest first
    held, on = 0.0, Counter[object]()
    best, at = (-math.inf, 0), 0
    started = [pod for pod in every if pod.start_s is not None]
    pods = sorted(started or every, key=lambda pod: pod.start_s or 0.0)
    if any(math.isnan(pod.gpus.asked) for pod in pods):
        return pods
    ends_s = [math.inf if pod.end_s is None else pod.end_s for pod in pods]
    for index, pod in enumerate(pods):
        while running and running[0][0] <= (pod.start_s or 0.0):
            gone = heappop(running)[1]
            held -= pods[gone].gpus.asked
            machine = pods[gone].machine or gone
            on[machine] -= 1
            if not on[machine]:
                del on[machine]
        heappush(running, (ends_s[index], index))
        held += pod.gpus.asked
        on[pod.machine or index] += 1
        if (held, len(on)) > best:
            best, at = (held, len(on)), index
    return [
        pod
        for pod, end_s in zip(pods[: at + 1], ends_s, strict=False)
        if pod is pods[at] or end_s > (pods[at].start_s or 0.0)
    ]


def known_s(times: Iterable[float | None], *, last: bool = False) -> float | None:
    """Return the earliest of the known times, or the last, if there is one; NaN if one is no time."""
    known = (time for time in times if time is not None)
    return min(known, key=lambda time: (not math.isnan(time), -time if last else time), default=None)
