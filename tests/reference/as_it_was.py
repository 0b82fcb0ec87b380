"""Where the jobs of a log ran, instant by instant and GPU by GPU, with nothing clever in it."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from tests.reference.links import communicate

HOUR_S = 3600.0


class LogRow(NamedTuple):
    """A row of a log: a job, and where it ran."""

    job: Job
    start_s: float | None
    end_s: float | None
    ran_on: str | None


class Placed(NamedTuple):
    """A job that held GPUs."""

    job: Job
    start_s: float
    end_s: float
    gpus: dict[int, list[int]]  # machine -> its GPUs, machines in the order of the log's list


def machine_of(cluster: Cluster, name: str) -> int | None:
    """Find a machine by its name as the log writes it."""
    names = [machine.name for machine in cluster.machines]
    if name in names:
        return names.index(name)
    alike = [index for index, each in enumerate(names) if each.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    alike = [index for index, each in enumerate(names) if each.lower().split(".")[0] == name.lower().split(".")[0]]
    if len(alike) == 1 and not ("." in name and "." in names[alike[0]]):
        return alike[0]
    return None


def asked_for(cluster: Cluster, row: LogRow) -> dict[int, int] | str:
    """Return the GPUs that a job held on each machine, or why they are not known."""
    if row.start_s is None or row.end_s is None:
        return "no start"
    words = (row.ran_on or "").split()
    if not words:
        return "no machines"
    names = [word.rpartition(":")[0] if ":" in word else word for word in words]
    counts = [int(word.rpartition(":")[2]) if ":" in word else None for word in words]
    if None in counts:
        ranks = range(row.job.gpus)
        counts = [sum(rank % len(words) == place for rank in ranks) for place in range(len(words))]
    held: dict[int, int] = {}
    for name, count in zip(names, counts, strict=True):
        if not count:
            continue
        machine = machine_of(cluster, name)
        if machine is None:
            return "elsewhere"
        held[machine] = held.get(machine, 0) + count
    if not held:
        return "no machines"
    return held if sum(held.values()) == row.job.gpus else "another number"


def placed_jobs(cluster: Cluster, rows: Sequence[LogRow]) -> tuple[list[Placed], dict[str, list[str]]]:
    """Place the jobs in the order of their starts; return them, and the ids of the others by reason."""
    placed: list[Placed] = []
    others: dict[str, list[str]] = {}
    ready = []
    for place, row in enumerate(rows):
        held = asked_for(cluster, row)
        if isinstance(held, str):
            others.setdefault(held, []).append(row.job.id)
        else:
            ready.append((row.start_s or 0.0, place, row, held))
    for now_s, _, row, held in sorted(ready, key=lambda each: each[:2]):
        free_on = {}
        for machine in held:
            taken = {
                gpu
                for other in placed
                if other.start_s <= now_s < other.end_s
                for gpu in other.gpus.get(machine, [])
            }
            free_on[machine] = [gpu for gpu in range(cluster.machines[machine].gpus) if gpu not in taken]
        chosen = {machine: free_on[machine][:count] for machine, count in held.items()}
        while sum(map(len, chosen.values())) < row.job.gpus:  # one by one, where the first has more
            larger = next((each for each in held if len(free_on[each]) > len(chosen[each])), None)
            if larger is None:
                break
            chosen[larger] = free_on[larger][: len(chosen[larger]) + 1]
        if sum(map(len, chosen.values())) == row.job.gpus and all(chosen.values()):
            placed.append(Placed(row.job, now_s, row.end_s or 0.0, chosen))
        elif all(there_is_room(cluster, placed, now_s, row.job.gpus, held, machine) for machine in held):
            for machine, count in held.items():  # as if evenly divided, free GPUs first
                every = range(cluster.machines[machine].gpus)
                others_there = [gpu for gpu in every if gpu not in free_on[machine]]
                chosen[machine] = sorted([*free_on[machine], *others_there][:count])
            placed.append(Placed(row.job, now_s, row.end_s or 0.0, chosen))
        else:
            others.setdefault("no room", []).append(row.job.id)
    return placed, others


def there_is_room(
    cluster: Cluster, placed: Sequence[Placed], now_s: float, gpus: int, on: Iterable[int], machine: int
) -> bool:
    """Tell whether a job of so many GPUs could be on a machine if each there has as few GPUs as it can."""
    here = [
        (other.job.gpus, list(other.gpus))
        for other in placed
        if other.start_s <= now_s < other.end_s and machine in other.gpus
    ]
    least = 0
    for asked, machines in [*here, (gpus, list(on))]:
        elsewhere = sum(cluster.machines[each].gpus for each in machines if each != machine)
        least += max(1, asked - elsewhere)
    return least <= cluster.machines[machine].gpus


def stretches(cluster: Cluster, placed: Sequence[Placed], window: tuple[float, float]) -> list[dict[str, Any]]:
    """Return what was held between each two instants of the window at which something changed."""
    instants = {*window}
    for each in placed:
        instants |= {at_s for at_s in (each.start_s, each.end_s) if window[0] < at_s < window[1]}
    ordered = sorted(instants)
    found = []
    for from_s, to_s in pairwise(ordered):
        here = [each for each in placed if each.start_s <= from_s < each.end_s]
        held = [sum(len(each.gpus.get(index, [])) for each in here) for index in range(len(cluster.machines))]
        found.append({"from_s": from_s, "to_s": to_s, "held": held, "jobs": here})
    return found


def machine_hours(
    cluster: Cluster, placed: Sequence[Placed], window: tuple[float, float], hold_s: float
) -> dict[str, float]:
    """Add up, machine by machine, the hours used, idle, and idle for long enough to be off."""
    found = stretches(cluster, placed, window)
    used = idle = off = off_gpus = 0.0
    for index, machine in enumerate(cluster.machines):
        since_s: float | None = None
        for each in [*found, None]:
            if each is not None and each["held"][index] == 0:
                since_s = each["from_s"] if since_s is None else since_s
                continue
            now_s = window[1] if each is None else each["from_s"]
            if since_s is not None:
                hours = (now_s - since_s) / HOUR_S
                idle += hours
                if hours >= hold_s / HOUR_S:
                    off += hours
                    off_gpus += hours * machine.gpus
            since_s = None
            if each is not None:
                used += (each["to_s"] - each["from_s"]) / HOUR_S
    return {"used_hours": used, "idle_hours": idle, "off_hours": off, "off_gpu_hours": off_gpus}


def moment(cluster: Cluster, placed: Sequence[Placed], at_s: float) -> dict[str, float]:
    """Measure one moment: machines used, fragmentation, GPUs held, and what the running jobs send."""
    here = [each for each in placed if each.start_s <= at_s < each.end_s]
    held = [sum(len(each.gpus.get(index, [])) for each in here) for index in range(len(cluster.machines))]
    sizes = [machine.gpus for machine in cluster.machines]
    used = [index for index, count in enumerate(held) if count]
    sent = 0.0
    for each in here:
        ranks = [machine for machine, gpus in each.gpus.items() for _ in gpus]
        sent += communicate(cluster, each.job, ranks).cross_bytes
    return {
        "used_machines": len(used),
        "fragmentation": sum(1 - held[index] / sizes[index] for index in used) / len(used) if used else 0.0,
        "cross_traffic_gb": sent / 1e9,
        "held_gpus": sum(held),
        "running_jobs": len(here),
    }
