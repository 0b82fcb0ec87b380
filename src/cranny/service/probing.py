"""Probing: a job whose speeds are unknown first runs briefly with workers on every type of GPU.

HAS/JPS (TPDS 2024), Sec. III-C: a job processes a few samples on one worker of each type before it is placed.
Here a waiting job that may be stopped, and whose speeds were neither stated nor learned, starts on one GPU of each
type (more if it needs them). Running jobs that can do with fewer make room where none is free. Its ranks report
how fast each of them is; what is learned from that ends the probe, and the policy divides the cluster with it. A
job that shows nothing is left to the policy after `PROBE_S`. While it is probed, the policy does not see it.

A job is probed once, and not if another one of its user and name was. Which attempt is a probe is in the log.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cranny.core.accounting import Running
from cranny.core.protocol import Policy, Timed
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Plan, Start
from cranny.service.job_records import JobRecords

PROBE_S = 120.0  # from its start to its end at the latest
PROBE = "probe"  # among the facts of a placement
MOST_TYPES = 8  # of GPUs, that a job is probed on


class ProbeRationale(NamedTuple):
    """Why a job is placed on GPUs of several types."""

    types: tuple[str, ...]

    def facts(self, placement: Placement) -> Mapping[str, object]:
        """Return the reasons as plain values."""
        return {"machines": list(placement.machines), PROBE: list(self.types)}

    def text(self, _placement: Placement) -> str:
        """Return the reasons as text."""
        return f"a probe: how fast it is on {', '.join(self.types)} is not known yet"


class RoomRationale(NamedTuple):
    """Why a job has fewer workers for a while."""

    job_id: str  # that is probed

    def facts(self, placement: Placement) -> Mapping[str, object]:
        """Return the reasons as plain values."""
        return {"machines": list(placement.machines), "makes_room_for": self.job_id}

    def text(self, _placement: Placement) -> str:
        """Return the reasons as text."""
        return f"makes room for a probe of job {self.job_id!r}, of which it is not known how fast it is"


class ProbingPolicy:
    """A policy that divides GPUs of several types, with probes of jobs whose speeds it does not know."""

    def __init__(self, policy: Policy, records: JobRecords) -> None:
        self._policy, self._records = policy, records
        self._types = tuple(kind for kind in records.cluster.machines_with if kind)

    def key(self, waiting: Waiting) -> Any:
        """Order the queue as the policy does."""
        return self._policy.key(waiting)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return the policy's reason."""
        return self._policy.why_wait(job, view)

    def next_s(self, view: Snapshot) -> float:
        """Be asked when the next probe is over, or when the policy wants to be."""
        own_s = [each.started_s + PROBE_S for each in self._probes(view)]
        other_s = self._policy.next_s(view) if isinstance(self._policy, Timed) else math.inf
        return min([*own_s, other_s])

    def plan(self, view: Snapshot) -> Plan:
        """Start a probe if one is due; otherwise do what the policy decides about all other jobs."""
        if not self._probing:
            return self._policy.plan(view)
        probes = {each.job.id for each in self._probes(view)}
        shown = view.hiding(probes) if probes else view
        for waiting in view.waiting:
            if self._unknown(waiting.job) and (actions := self._probe(waiting, shown)):
                return Plan(view.version, actions)
        return self._policy.plan(shown)

    @property
    def _probing(self) -> bool:
        return 1 < len(self._types) <= MOST_TYPES and self._records.mode != "recommend"

    def _unknown(self, job: Job) -> bool:
        """Say whether a job should be probed: neither it nor one of its name was, and it may run on any type."""
        record = self._records.jobs.get(job.id)
        if record is None or not record.spec.may_stop or job.gpu_type is not None or job.tp * job.pp > 1:
            return False
        if job.speeds is not None:
            return False
        alike = [self._records.jobs[each] for each in self._records.alike(record)]
        return not any(PROBE in attempt.facts for each in alike for attempt in each.attempts)

    def _probes(self, view: Snapshot) -> list[Running]:
        """Return the running jobs that are probed."""
        found = []
        for job_id, running in view.running.items() if self._probing else ():
            record = self._records.jobs.get(job_id)
            attempt = None if record is None else record.attempt
            logged = attempt is not None and attempt.ended_s is None and PROBE in attempt.facts
            new = isinstance(running.placement.rationale, ProbeRationale)  # decided just now
            recent = view.now_s < running.started_s + PROBE_S
            if (logged or new) and recent and running.submitted.speeds is None:
                found.append(running)
        return found

    def _probe(self, waiting: Waiting, view: Snapshot) -> tuple[Action, ...]:
        """Return the actions that start a probe; none if there is no room for it."""
        job = waiting.job
        count = max(len(self._types), job.least_gpus or job.gpus)
        if not job.may_have(count):
            return ()
        wanted = Counter(self._types[at % len(self._types)] for at in range(count))
        free = view.free.tolist()
        given: dict[str, list[int]] = {}  # running jobs that make room: the machines that they leave
        chosen: list[int] = []
        for kind, workers in wanted.items():
            machines = [at for at, each in enumerate(view.cluster.machines) if each.gpu_type == kind]
            for _ in range(workers):
                machine = next((at for at in machines if free[at] > 0), None)
                if machine is None:
                    machine = self._room_on(machines, view, given)
                    if machine is None:
                        return ()
                else:
                    free[machine] -= 1
                chosen.append(machine)
        moves = [self._without(view.running[job_id], left, job.id) for job_id, left in given.items()]
        start = Start(job, Placement(chosen, rationale=ProbeRationale(self._types)), waiting.attained_gpu_s)
        return (*moves, start)

    def _room_on(self, machines: Iterable[int], view: Snapshot, given: dict[str, list[int]]) -> int | None:
        """Return a machine that a running job can leave with one worker, of the job that has most to spare."""
        best: tuple[int, str, int] | None = None
        among = set(machines)
        for job_id, running in view.running.items():
            left = given.get(job_id, [])
            least = running.submitted.least_gpus or running.submitted.gpus
            spare = len(running.placement.machines) - len(left) - least
            counts = Counter(running.placement.machines)
            counts.subtract(left)
            here = [at for at in among if counts[at] > 0 and view.is_up(at)]
            if spare > 0 and here and not running.placement.spare and (best is None or spare > best[0]):
                best = spare, job_id, min(here)
        if best is None:
            return None
        given.setdefault(best[1], []).append(best[2])
        return best[2]

    def _without(self, running: Running, left: Iterable[int], probed: str) -> Move:
        """Return the move of a job that leaves some machines with one worker each."""
        machines = list(running.placement.machines)
        for machine in left:
            machines.remove(machine)
        return Move(running.job.id, Placement(machines, rationale=RoomRationale(probed)))
