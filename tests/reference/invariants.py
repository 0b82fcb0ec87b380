"""Invariants of the state, recounted from scratch. Tests run this after everything they do."""

import math

from cranny.core.state import ClusterState
from cranny.core.traffic import communication
from cranny.model.errors import CrannyError
from cranny.model.job import Job

TOLERANCE = 1e-6


class InvariantError(CrannyError):
    """The state contradicts itself: a bug in cranny."""


def check(state: ClusterState) -> None:
    """Raise unless every GPU has at most one job, every rank one GPU, and every total adds up."""
    view = state.snapshot()
    cluster = state.cluster
    held = [0] * len(cluster.machines)
    idle_gpus_with_job = [0] * len(cluster.machines)
    link_gbps = [0.0] * len(cluster.parent)
    cross_bytes = 0.0
    for job_id, running in state.running.items():
        job, placement = running.job, running.placement
        _require(job_id == job.id, f"job {job.id!r} is recorded under {job_id!r}")
        _require(len(placement.machines) == job.gpus, f"job {job_id!r} does not have each rank placed once")
        _require(
            {machine: gpus.bit_count() for machine, gpus in running.held.items()} == dict(placement.counts),
            f"job {job_id!r} holds other GPUs than it was placed on",
        )
        for machine, gpus in running.held.items():
            _require(not held[machine] & gpus, f"a GPU of machine {machine} is held twice")
            _require(gpus < 1 << cluster.machines[machine].gpus, f"machine {machine} has no such GPU")
            held[machine] |= gpus
            # Not taken from the snapshot: policies rely on it, so that it is checked here, too.
            kind = cluster.machines[machine].gpu_type
            can_run = job.gpu_type in (None, kind) and (job.speeds is None or kind in job.speeds)
            _require(can_run, f"job {job_id!r}: wrong GPU type")
        for machine in placement.spare:
            idle_gpus_with_job[machine] += 1
        cost = communication(cluster, job, placement.machines, placement.server, placement.aggregate)
        cross_bytes += cost.cross_bytes
        for link, gbps in cost.link_gbps.items():
            link_gbps[link] += gbps
    _check_machines(state, held, idle_gpus_with_job)
    _check_resources(state)
    for link, gbps in enumerate(link_gbps):
        _require(_close(view.link_use_gbps(link), gbps), f"link {link} carries {gbps}, not what is recorded")
    _require(_close(state.totals()[2], cross_bytes), "cross-machine bytes do not add up")


def _check_resources(state: ClusterState) -> None:
    """Recount the resources beside GPUs that jobs leave; those of jobs of others are not known here."""
    for name in {name for machine in state.cluster.machines for name in machine.resources}:
        left = [machine.resources.get(name, 0) for machine in state.cluster.machines]
        for running in state.running.values():
            for machine in running.placement.machines:
                left[machine] -= (running.job.resources or {}).get(name, 0)
        one = Job("one more", 1, resources={name: 1})
        found = state.snapshot().room_for(one).tolist()
        _require(found == [max(0, each) for each in left], f"{name}: {found} left, and not {left}")


def _check_machines(state: ClusterState, held: list[int], spare: list[int]) -> None:
    """Recount machines, sets of machines and fragmentation."""
    view, cluster = state.snapshot(), state.cluster
    used, idle_share, gpus_held = 0, 0.0, 0
    for machine, gpus in enumerate(held):
        size, taken = cluster.machines[machine].gpus, gpus.bit_count()
        free, up = view.free_on(machine), state.is_up(machine)
        _require(free == (size - taken if up else 0), f"machine {machine} counts {free} GPUs free")
        _require(view.slots_on(machine) == ((1 << size) - 1 ^ gpus if free else 0), f"machine {machine}: slots")
        _require(view.is_up(machine) == up, f"machine {machine} is both up and down")
        _require(not (state.has_failed(machine) and taken), f"machine {machine} failed, but runs jobs")
        kinds = [(True, f) for f, group in enumerate(view.machines.idle) if group >> machine & 1]
        kinds += [(False, f) for f, group in enumerate(view.machines.in_use) if group >> machine & 1]
        _require(kinds == ([(not taken, free)] if up else []), f"machine {machine} is recorded as {kinds}")
        gpus_held += taken
        if taken:
            used += 1
            idle_share += (size - taken + spare[machine]) / size
    _require(state.used_machines == used, f"{used} machines are used, not {state.used_machines}")
    _require(state.held_gpus == gpus_held, f"{gpus_held} GPUs are held, not {state.held_gpus}")
    _require(_close(state.fragmentation, idle_share / used if used else 0.0), "fragmentation does not add up")


def _require(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence where it is called
    if not holds:
        raise InvariantError(what)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
