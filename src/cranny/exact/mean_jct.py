"""The least mean completion time of a few jobs, all known in advance: a bound for every policy that stops no job.

Each job gets a start and GPUs that it keeps to its end; a policy that stops or moves jobs may do better. How long
a job runs depends on whether its ranks share a machine, share a rack, or neither. That is so for a ring on equal
machines in equal racks: a link between its ranks carries one message each way in each phase if the machines of a
rack follow each other, whatever the number of machines. Other jobs and clusters are refused.

Durations and submissions are rounded to whole seconds, so that CP-SAT is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from cranny.core.traffic import communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.validate import positive

LEVELS = 2  # of links: machines below racks


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Whole seconds that a job runs; None where it cannot."""

    on_machine_s: int | None
    in_rack_s: int | None
    across_s: int | None

    @property
    def possible_s(self) -> list[int]:
        """Those that are possible."""
        return [each for each in (self.on_machine_s, self.in_rack_s, self.across_s) if each is not None]


@dataclass(frozen=True, slots=True)
class MeanJctOptimum:
    """The best schedule that was found, and what no schedule is better than."""

    mean_jct_s: float
    bound_s: float  # the same if proven
    proven: bool
    starts_s: tuple[int, ...]  # of each job
    gpus_on: tuple[tuple[int, ...], ...]  # (jobs, machines)


def run_times(cluster: Cluster, job: Job) -> RunTimes:
    """Return how long a job runs on one machine, in one rack and in several."""
    size = cluster.machines[0].gpus
    spans = cluster.rack_spans
    in_rack = spans[0][1] - spans[0][0]

    def seconds(machines: tuple[int, ...]) -> int:
        return round((job.duration_s or 0.0) * isolated(job, communication(cluster, job, machines)))

    rest, several = job.gpus - 1, in_rack > 1 and job.gpus > 1
    return RunTimes(
        on_machine_s=seconds((0,) * job.gpus) if job.gpus <= size else None,
        in_rack_s=seconds((0, *[1] * rest)) if several and job.gpus <= in_rack * size else None,
        across_s=seconds((0, *[spans[1][0]] * rest)) if len(spans) > 1 and job.gpus > 1 else None,
    )


def _refuse(cluster: Cluster, jobs: Sequence[Job]) -> None:
    """Raise where a job's time depends on more than machine, rack or neither."""
    machines = len(cluster.machines)
    alike = (
        {machine.gpus for machine in cluster.machines},
        {past - first for first, past in cluster.rack_spans},
        {len(path) for path in cluster.paths},
        set(cluster.uplink_gbps[:machines]),
        set(cluster.uplink_gbps[machines : cluster.root]),
    )
    if any(len(values) > 1 for values in alike) or len(cluster.paths[0]) > LEVELS:
        raise CrannyError("mean_jct: machines and racks must be equal, in at most two levels of switches")
    for job in jobs:
        if job.collective != "ring" or job.tp * job.pp > 1 or job.profile.exchanged_bytes or not job.duration_s:
            raise CrannyError(f"mean_jct: job {job.id!r} must be a ring with a duration, without tp or pp")
        if job.gpus > cluster.gpus:
            raise CrannyError(f"mean_jct: job {job.id!r} needs {job.gpus} GPUs of {cluster.gpus}")


class _Schedule:
    """Starts, machines and times of jobs as a CP-SAT model."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job]) -> None:
        self.cp = cp_model.CpModel()
        self.cluster, self.jobs = cluster, jobs
        times = [run_times(cluster, job) for job in jobs]
        submits_s = [round(job.submit_s) for job in jobs]
        self.horizon_s = max(submits_s) + sum(max(each.possible_s) for each in times)
        self.starts = [self.cp.new_int_var(submit_s, self.horizon_s, "start") for submit_s in submits_s]
        self.gpus_on = [
            [self.cp.new_int_var(0, min(job.gpus, machine.gpus), "GPUs") for machine in cluster.machines]
            for job in jobs
        ]
        ran = [self._time_on_machines(number, each) for number, each in enumerate(times)]
        ends = [self.cp.new_int_var(submit_s, self.horizon_s, "end") for submit_s in submits_s]
        self._share_machines(ran, ends)
        self._break_symmetry()
        self.cp.minimize(sum(ends) - sum(submits_s))

    def _time_on_machines(self, number: int, times: RunTimes) -> cp_model.IntVar:
        """Let a job have a machine, a rack or any machines, and return how long it runs then."""
        cp, gpus_on, gpus = self.cp, self.gpus_on[number], self.jobs[number].gpus
        places = [(gpus_on[machine : machine + 1], times.on_machine_s) for machine in range(len(gpus_on))]
        places += [(gpus_on[slice(*span)], times.in_rack_s) for span in self.cluster.rack_spans]
        places.append((gpus_on, times.across_s))
        cp.add(sum(gpus_on) == gpus)
        chosen, took = [], []
        for inside, seconds in places:
            if seconds is not None:
                here = cp.new_bool_var("here")
                cp.add(sum(inside) == gpus).only_enforce_if(here)
                chosen.append(here)
                took.append(seconds * here)
        cp.add_exactly_one(chosen)
        ran = cp.new_int_var(min(times.possible_s), max(times.possible_s), "ran")
        cp.add(ran == sum(took))
        return ran

    def _share_machines(self, ran: Sequence[cp_model.IntVar], ends: Sequence[cp_model.IntVar]) -> None:
        """Give no GPU to two jobs at once; that all GPUs together suffice is implied, and shortens the proof."""
        cp = self.cp
        intervals = [cp.new_interval_var(*each, "runs") for each in zip(self.starts, ran, ends, strict=True)]
        for machine, spec in enumerate(self.cluster.machines):
            cp.add_cumulative(intervals, [row[machine] for row in self.gpus_on], spec.gpus)
        cp.add_cumulative(intervals, [job.gpus for job in self.jobs], self.cluster.gpus)

    def _break_symmetry(self) -> None:
        """Order the machines of a rack by what they take of the first job, the second, ...; and racks likewise."""
        base = self.cluster.machines[0].gpus + 1

        places = [base**place for place in reversed(range(len(self.jobs)))]

        def in_digits(machine: int) -> cp_model.LinearExpr:
            return cp_model.LinearExpr.weighted_sum([row[machine] for row in self.gpus_on], places)

        for first, past in self.cluster.rack_spans:
            for machine, following in pairwise(range(first, past)):
                self.cp.add(in_digits(machine) >= in_digits(following))
        for span, following_span in pairwise(self.cluster.rack_spans):
            self.cp.add(sum(self.gpus_on[0][slice(*span)]) >= sum(self.gpus_on[0][slice(*following_span)]))


def least_mean_jct(cluster: Cluster, jobs: Sequence[Job], time_limit_s: float = 10.0) -> MeanJctOptimum:
    """Return the schedule of the least mean completion time, with proof or as far as the time limit lets it come.

    The limit is in CP-SAT's deterministic seconds: near those of a clock, but the same on every machine.
    """
    _refuse(cluster, jobs)
    schedule = _Schedule(cluster, jobs)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # else the next Ctrl-C would end the process without clean-up
    solver.parameters.random_seed = 0
    solver.parameters.linearization_level = 2  # four times faster here, and proves what is not proved otherwise
    solver.parameters.max_deterministic_time = positive(time_limit_s, "mean_jct: time_limit_s")
    status = solver.solve(schedule.cp)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise CrannyError(f"mean_jct: nothing found within {time_limit_s:g} s; raise time_limit_s")
    return MeanJctOptimum(
        mean_jct_s=solver.objective_value / len(jobs),
        bound_s=solver.best_objective_bound / len(jobs),
        proven=status == cp_model.OPTIMAL,
        starts_s=tuple(solver.value(start) for start in schedule.starts),
        gpus_on=tuple(tuple(solver.value(each) for each in row) for row in schedule.gpus_on),
    )
