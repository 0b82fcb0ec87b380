"""Replays a trace with a compiled event loop, where cluster, policy and network allow it.

The outcome is the same, to the last bit, as that of `Replay`. Most jobs of most logs fit one machine, and their
placement follows from the free GPUs alone: these are placed in compiled code, and so are jobs on several machines,
if the placer has a drafter and the case is simple. For other jobs the placer is called as in `Replay`, once the
accounting is up to date.
"""

from collections.abc import Callable
from operator import itemgetter

import numpy as np
import polars as pl

from cranny.core.accounting import Accounting
from cranny.core.fast.greedy import greedy
from cranny.core.fast.memo import Memo
from cranny.core.fast.placement_arrays import (
    CROSS_BYTES,
    LINKS,
    PARTS,
    SLOWDOWN,
    WAIT,
    PlacementArrays,
    PlacementRequest,
    add_pattern,
    build_arrays,
)
from cranny.core.feasibility import Feasibility, never_fits, too_large
from cranny.core.jit import pointer
from cranny.core.protocol import Drafter, Drafting, FirstChoices, Policy, Slowdown
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import GIGA, SILENT, communication, exchange_graph, isolated
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.errors import PlacementError
from cranny.network.networks import instant
from cranny.sim.fast import replay_kernel as kernel
from cranny.sim.fast.kernel_setup import JobColumns, pattern_count, set_up
from cranny.sim.record import DONE, JOBS, RUNS, SKIPPED, ReplayRecord, RunColumns

PAUSE_EVERY = 8192  # arrivals, to report progress
# Of the time that a job's communication takes, the share that lengthens its iterations in these networks.
STRETCH: dict[Slowdown, float] = {isolated: 1.0, instant: 0.0}


def compiled_replay(
    cluster: Cluster, policy: Policy, network: Slowdown, jobs: JobColumns
) -> "CompiledReplay | None":
    """Return a compiled replay if cluster, policy, network and jobs allow it; None if not."""
    simple = len({machine.gpus for machine in cluster.machines}) == 1 and jobs.any_type
    placer = policy.placer if isinstance(policy, QueuePolicy) and policy.order == "fifo" else None
    return CompiledReplay(cluster, placer, network) if simple and isinstance(placer, FirstChoices) else None


class CompiledReplay:
    """One simulation of a cluster of equal machines, in fifo order."""

    def __init__(self, cluster: Cluster, placer: FirstChoices, network: Slowdown = isolated) -> None:
        self.cluster = cluster
        self._placer = placer
        self._network = network
        self._drafter = _drafter(placer) if network in STRETCH else None
        self._accounting = Accounting(cluster)  # machines and links as of the last update; it holds no jobs
        self._feasibility = Feasibility(cluster)
        self._memo = Memo(cluster.machines[0].gpus + 1, 1 + 2 * len(cluster.machines) + cluster.gpus)
        setting = self._drafter.setting if self._drafter is not None else 0.0
        self._arrays: PlacementArrays = build_arrays(
            cluster, placer, self._memo.table, pattern_count(cluster), setting
        )
        ints, bits = np.zeros(1024, np.int64), np.zeros(1024, np.uint64)
        self._held = kernel.PartArrays(ints, bits, ints.copy(), np.zeros(1024))
        self._skipped: list[tuple[int, int, str]] = []  # the last arrival till then, the job, the reason

    def run(self, jobs: JobColumns, progress: Callable[[int], None] | None = None) -> ReplayRecord:
        """Replay jobs in the order of their submission until all are done."""
        replay = set_up(
            self.cluster,
            jobs,
            drafts=self._drafter is not None,
            fragments_before_idle=self._placer.fragments_before_idle,
            stretch=STRETCH.get(self._network, 0.0),
        )
        drafter = self._drafter or greedy(fewest=False)
        draft = pointer(drafter.draft, self._arrays, PlacementRequest(1, 0, 1.0, 1.0))
        serve = {
            kernel.PLACE: self._place,
            kernel.CHECK: self._check,
            kernel.STUCK: self._skip_first,
            kernel.ADD_PATTERN: self._add_pattern,
            kernel.LEARN_SPLIT: self._learn_split,
            kernel.GROW: self._grow,
        }
        pause = PAUSE_EVERY
        while (why := kernel.advance(replay, self._arrays, self._held, draft, pause)) != kernel.FINISHED:
            if why != kernel.PAUSED:
                serve[why](replay, jobs)
                continue
            if progress is not None:
                progress(pause)
            pause += PAUSE_EVERY
        return self._record(replay, jobs)

    def _place(self, replay: kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Place the first job of the queue, or report that it must wait."""
        job = jobs[_first_job(replay)]
        self._update_accounting(replay)
        placement = self._placer.place(job, self._view(replay))
        if placement is None:
            replay.at[kernel.ANSWER] = WAIT
            return
        held = placement.counts
        for machine, gpus in held.items():
            if self._accounting.free[machine] < gpus:
                raise PlacementError(f"job {job.id!r} needs {gpus} GPUs of machine {machine}, which are not free")
        cost = communication(self.cluster, job, placement.machines) if len(held) > 1 else SILENT
        draft, parts, links = self._arrays.draft, len(held), len(cost.link_gbps)
        draft.machine[:parts] = list(held)
        draft.gpus[:parts] = list(held.values())
        draft.links[:links] = list(cost.link_gbps)
        draft.gbps[:links] = list(cost.link_gbps.values())
        draft.at[PARTS], draft.at[LINKS] = parts, links
        draft.cost[CROSS_BYTES] = cost.cross_bytes
        draft.cost[SLOWDOWN] = self._network(job, cost) if cost.comm_s else 1.0
        replay.at[kernel.ANSWER] = parts

    def _add_pattern(self, replay: kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Add the communication pattern of the first job of the queue."""
        index = _first_job(replay)
        patterns = add_pattern(self._arrays.patterns, int(replay.pattern[index]), exchange_graph(jobs[index]))
        self._arrays = self._arrays._replace(patterns=patterns)

    def _learn_split(self, replay: kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Add what the drafter needs to the memo for the first job of the queue."""
        if self._drafter is not None and self._drafter.memo_entry is not None:
            key = self._arrays.draft.key
            self._memo.add(key, self._drafter.memo_entry(jobs[_first_job(replay)], [0, *key[1:].tolist()]))

    def _grow(self, replay: kernel.ReplayArrays, jobs: JobColumns) -> None:  # noqa: ARG002 - one signature for all
        """Grow the arrays of what jobs hold."""
        parts = 2 * int(replay.at[kernel.HELD]) + len(self._arrays.draft.machine)
        uses = 2 * int(replay.at[kernel.SENT]) + len(self._arrays.draft.links)
        sizes = zip(self._held, (parts, parts, uses, uses), strict=True)
        self._held = kernel.PartArrays._make(np.resize(column, size) for column, size in sizes)

    def _update_accounting(self, replay: kernel.ReplayArrays) -> None:
        """Update the accounting with what happened since."""
        accounting, machines = self._accounting, self._arrays.machines
        changed = replay.changed[: replay.at[kernel.CHANGED]]
        for machine, slots in zip(changed.tolist(), machines.open_slots[changed].tolist(), strict=True):
            accounting.slots[machine] = slots
            accounting.free[machine] = slots.bit_count()
        replay.is_changed[changed] = False
        replay.at[kernel.CHANGED] = 0
        words, width = machines.sets.tobytes(), machines.sets.itemsize * machines.sets.shape[1]
        sets = [int.from_bytes(words[at : at + width], "little") for at in range(0, len(words), width)]
        *accounting.in_use, accounting.idle[-1] = sets  # the machines with each number of GPUs free
        accounting.in_use.append(0)  # a machine with all its GPUs free is idle
        accounting.link_use_gbps = self._arrays.links.use_gbps.tolist()
        accounting.link_users = self._arrays.links.users.tolist()

    def _check(self, replay: kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Skip arrived jobs that would not be placed on the empty cluster: they would block others for good."""
        at, queue = replay.at, replay.queue
        first = max(at[kernel.HEAD], at[kernel.TAIL] - at[kernel.ARRIVED])
        waiting = queue[first : at[kernel.TAIL]].tolist()
        reasons = {index: self._feasibility.why_not(jobs[index], self._placer) for index in waiting}
        last = int(at[kernel.NEXT_JOB]) - 1
        self._skipped += [(last, index, reason) for index, reason in reasons.items() if reason is not None]
        feasible = [index for index in waiting if reasons[index] is None]
        at[kernel.TAIL] = first + len(feasible)
        queue[first : at[kernel.TAIL]] = feasible
        if first == at[kernel.HEAD] and reasons[waiting[0]] is not None:
            at[kernel.STAGE] = kernel.SERVE  # another job is the first now

    def _skip_first(self, replay: kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Skip the first job of the queue, which does not start although nothing runs."""
        index = _first_job(replay)
        self._update_accounting(replay)
        reason = self._placer.why_wait(jobs[index], self._view(replay))
        self._skipped.append((int(replay.at[kernel.NEXT_JOB]) - 1, index, never_fits(reason)))
        replay.at[kernel.HEAD] += 1

    def _view(self, replay: kernel.ReplayArrays) -> Snapshot:
        """Return the cluster as of the last update."""
        version, now_s = int(replay.at[kernel.STARTS]), float(replay.level[kernel.NOW_S])
        return Snapshot(self._accounting, version, now_s, ())

    def _record(self, replay: kernel.ReplayArrays, jobs: JobColumns) -> ReplayRecord:
        """Return everything in columns."""
        done = replay.ended[: replay.at[kernel.ENDED]]
        run_columns = RunColumns(
            replay.gpus[done].astype(float),
            replay.duration_s[done],
            replay.slowdown[done],
            replay.first_sample[done],
            replay.past_sample[done],
        )
        samples = replay.samples[: replay.at[kernel.SAMPLES]]
        return ReplayRecord(self._jobs(replay, jobs, done), self._runs(replay, jobs, done), samples, run_columns)

    def _jobs(self, replay: kernel.ReplayArrays, jobs: JobColumns, done: Ints) -> pl.DataFrame:
        capacity = self.cluster.gpus
        larger = np.flatnonzero(replay.gpus > capacity).tolist()
        found = [*((at, at, too_large(int(replay.gpus[at]), capacity)) for at in larger), *self._skipped]
        skipped = {job: reason for _, job, reason in sorted(found, key=itemgetter(0))}  # as that was found
        rows = np.concatenate([done, np.fromiter(skipped, np.int64, len(skipped))])
        submit_s = replay.submit_s[rows]
        known = pl.Series(np.arange(len(rows)) < len(done))  # of the jobs that ran

        def ran(values: Floats | Ints) -> pl.Series:
            """Return values of jobs, empty for those that did not run."""
            return pl.Series(values).set(~known, None)

        start_s, finish_s = ran(replay.start_s[rows]), ran(replay.finish_s[rows])
        return pl.DataFrame(
            {
                "job_id": jobs.columns["job_id"].gather(rows),
                "gpus": replay.gpus[rows],
                "model": jobs.columns["model"].gather(rows),
                "tenant": jobs.columns["tenant"].gather(rows),
                "submit_s": submit_s,
                "start_s": start_s,
                "finish_s": finish_s,
                "wait_s": start_s - submit_s,
                "jct_s": finish_s - submit_s,
                "duration_s": replay.duration_s[rows],
                "slowdown": ran(replay.slowdown[rows]),
                "machines": ran(np.maximum(replay.parts[rows], 1)),
                "cross_traffic_gb": ran(replay.cross_bytes[rows] / GIGA),
                **{name: ran(np.zeros(len(rows), np.int64)) for name in ("restarts", "moves")},
                "status": pl.Series([DONE, SKIPPED]).gather(np.repeat([0, 1], [len(done), len(skipped)])),
                "reason": pl.Series([*[None] * len(done), *skipped.values()], dtype=pl.String),
            },
            schema=JOBS,
        )

    def _runs(self, replay: kernel.ReplayArrays, jobs: JobColumns, done: Ints) -> pl.DataFrame:
        count = np.maximum(replay.parts[done], 1)
        job = np.repeat(done, count)  # of each row
        nth = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)  # part of its job
        drafted = replay.parts[job] > 0
        part = np.where(drafted, replay.first_part[job] + nth, 0)
        return pl.DataFrame(
            {
                "job_id": jobs.columns["job_id"].gather(job),
                "start_s": replay.start_s[job],
                "end_s": replay.finish_s[job],
                "machine": np.where(drafted, self._held.machine[part], replay.machine[job]),
                "gpus": np.where(drafted, self._held.slots[part], replay.slots[job]),
            },
            schema=RUNS,
        )


def _drafter(placer: FirstChoices) -> Drafter | None:
    """Return what drafts a placer's placements, if anything does."""
    if not isinstance(placer, Drafting):
        return None
    family = type(placer).__mro__
    drafts, places = (next(each for each in family if name in vars(each)) for name in ("drafter", "place"))
    return placer.drafter() if issubclass(drafts, places) else None  # a parent's would not do as `place` does


def _first_job(replay: kernel.ReplayArrays) -> int:
    """Return the first job of the queue."""
    return int(replay.queue[replay.at[kernel.HEAD]])
