"""What would help a job that waits. A step is tried on a copy of how things stand before it is given."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.plan import Start, Stop
from cranny.model.validate import counted
from cranny.service.fork import Fork
from cranny.service.job_records import JobRecord

TRIED = 2_000  # waiting jobs up to which steps are tried: a longer queue takes too long to copy
TRIES = 8  # numbers of GPUs that are tried
HIGHEST = 1_000  # priority


class Suggestions:
    """Steps for one job."""

    def __init__(self, record: JobRecord, fork: Fork, view: Snapshot, free: int) -> None:
        """Look at how things stand; `free` are the free GPUs that the job may have."""
        self._record = record
        self._fork = fork
        self._view = view
        self._free = free
        self._first = fork.queue[0].job.id
        self._long = len(fork.queue) > TRIED

    def too_few_gpus(self) -> str:
        """Say what helps a job that finds too few free GPUs, or none where it may have them."""
        return (
            self._resume()
            or self._freer()
            or self._fewer()
            or self._wait("wait for running jobs to end, or cancel one")
        )

    def behind_others(self) -> str:
        """Say what helps a job that only stands behind others."""
        steps = []
        spec, before = self._record.spec, self._fork.records.jobs.get(self._first)
        ahead = before.spec.priority if before is not None else 0  # nobody in the queue has a higher one
        first = replace(self._record, spec=spec.model_copy(update={"priority": ahead + 1}))
        if ahead < HIGHEST and (self._long or self._starts(record=first)):
            steps.append(f"submit it with a priority above {ahead}")
        if self._fork.setting["order"] != "backfill" and self._starts(policy={"order": "backfill"}):
            steps.append(f"let jobs pass: {self._command('backfill')}")
        return ", or ".join(steps) or self._wait("wait")

    def constraints(self) -> str:
        """Say which wish to leave out."""
        return self._freer() or self._wait("wait until machines that satisfy its constraints come free")

    def scattered(self) -> str:
        """Say what helps a job that the policy will not spread over the free GPUs as they lie."""
        return self._fewer() or self._wait("wait until machines come free as a whole")

    def _wait(self, otherwise: str) -> str:
        """Say for what to wait."""
        if self._first != self._record.id:
            return f"wait until {self._first}, which is first in the queue, has started"
        return otherwise

    def _resume(self) -> str:
        """Name the machines that take no jobs and would make room, if they took some."""
        view, job = self._view, self._record.job
        machines, least = view.cluster.machines, job.least_gpus or job.gpus
        mine = [number for number in range(len(machines)) if self._may_have(number)]
        down = [number for number in mine if not view.is_up(number)]
        if not down:
            return ""
        state = self._fork.state.copy()
        for number in down:
            state.repair(number)
        back = state.snapshot()
        chosen = _fewest(((back.free_on(number), number) for number in down), least - self._free)
        if chosen and self._starts(repaired=chosen):
            return _resume([machines[number].name for number in chosen])
        ever = sum(machines[number].gpus for number in mine) - sum(machines[number].gpus for number in down)
        if ever >= least:
            return ""
        chosen = _fewest(((machines[number].gpus, number) for number in down), least - ever)
        left = f"the others have {counted(ever, 'GPU')}" if ever else "no other machine may take it"
        return f"{_resume([machines[number].name for number in chosen])}; {left}"

    def _may_have(self, machine: int) -> bool:
        constraints = self._record.constraints
        fits = bool(self._view.eligible(self._record.job) >> machine & 1)
        return fits and (constraints is None or not constraints.excluded >> machine & 1)

    def _freer(self) -> str:
        """Name a wish without which the job would start."""
        record, constraints = self._record, self._record.constraints
        without: dict[str, JobRecord] = {}
        if constraints is not None and constraints.same_rack == "required":
            without["constraints.same_rack"] = replace(record, constraints=constraints._replace(same_rack=None))
        if constraints is not None and constraints.excluded:
            without["constraints.exclude"] = replace(record, constraints=constraints._replace(excluded=0))
        if record.job.gpu_type is not None:
            without["constraints.gpu_type"] = replace(record, job=replace(record.job, gpu_type=None))
        binding = [name for name, other in without.items() if self._starts(record=other)]
        return f"leave out {' or '.join(binding)}: it would start now" if binding else ""

    def _fewer(self) -> str:
        """Name the most GPUs with which the job would start now."""
        job = self._record.job
        group = job.tp * job.pp
        most = min(self._free, job.gpus - 1) // group
        if not most or not self._starts(job=_sized(group)):
            return ""
        best, tried, too_many = 1, most, most + 1
        for _ in range(TRIES):  # a policy that takes a job takes smaller ones too, or nearly so
            if not best < tried < too_many:
                break
            if self._starts(job=_sized(tried * group)):
                best = tried
            else:
                too_many = tried
            tried = (best + too_many) // 2
        gpus = best * group
        step = f"ask for {counted(gpus, 'GPU')}{' or fewer' if gpus > group else ''}: it would start now"
        if job.least_gpus is None and self._starts(job={"least_gpus": gpus}):
            step += "; or say least_gpus, if it can also run with fewer"
        return step

    def _starts(
        self,
        *,
        record: JobRecord | None = None,
        job: dict[str, Any] | None = None,
        policy: dict[str, Any] | None = None,
        repaired: Iterable[int] = (),
    ) -> bool:
        """Try whether the job would start if something were otherwise."""
        fork, tried = self._fork, record or self._record
        if self._long:
            return False
        try:
            if job is not None:
                tried = replace(tried, job=replace(tried.job, **job))
            fork = fork._replace(
                setting={**fork.setting, **(policy or {})},
                queue=[_with(each, tried.job) for each in fork.queue],
            )
            engine = fork.engine(tried)
            for machine in repaired:
                engine.state.repair(machine)
            actions = engine.tick(self._view.now_s)
        except CrannyError:  # what is tried cannot be: such a job, or such an order with this policy
            return False
        started = False
        for action in actions:
            if isinstance(action, Start) and action.job.id == tried.id:
                started = True
            elif isinstance(action, Stop) and action.job_id == tried.id:
                started = False
        return started

    def _command(self, order: str) -> str:
        """Spell the command that keeps the policy and changes its queue order."""
        setting = self._fork.setting
        words = ["cranny policy set", setting["name"], "--order", order]
        if setting["period_s"]:
            words += ["--period", f"{setting['period_s']:g}"]
        for name, value in setting["options"].items():
            words += ["--set", f"{name}={value}"]
        return " ".join(words)


def _sized(gpus: int) -> dict[str, Any]:
    """Return the fields of a job that runs with so many GPUs, no fewer and no more."""
    return {"gpus": gpus, "least_gpus": None, "most_gpus": None}


def _with(waiting: Waiting, job: Job) -> Waiting:
    """Return a job of the queue, or what is tried in its place."""
    return waiting._replace(job=job) if waiting.job.id == job.id else waiting


def _fewest(offers: Iterable[tuple[int, int]], wanted: int) -> list[int]:
    """Return the fewest machines whose GPUs are enough, those with most first; none if all are not enough."""
    chosen = []
    for gpus, machine in sorted(offers, key=lambda available: (-available[0], available[1])):
        if wanted <= 0:
            break
        chosen.append(machine)
        wanted -= gpus
    return chosen if wanted <= 0 else []


def _resume(names: list[str]) -> str:
    if len(names) == 1:
        return f"resume {names[0]}, which takes no jobs: cranny resume {names[0]}"
    told = " and ".join(names) if len(names) == 2 else f"{len(names)} machines from {names[0]} to {names[-1]}"
    return f"resume {told}, which take no jobs: cranny resume {names[0]}, and so on"
