"""Replays a trace with a compiled event loop, where cluster, policy and network allow it.

The outcome is the same, to the last bit, as that of `Replay`. Most jobs of most logs fit one machine, and their
placement follows from the free GPUs alone: these are placed in compiled code, and so are jobs on several machines,
if the placer has a drafter and the case is simple. For other jobs the placer is called as in `Replay`, once the
accounting is up to date.
"""

from collections.abc import Callable
from operator import itemgetter

import numpy as np
import numpy.typing as npt
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
from cranny.model.cluster import Cluster
from cranny.model.errors import PlacementError
from cranny.network.networks import instant
from cranny.sim.fast import replay_kernel
from cranny.sim.fast.kernel_setup import JobColumns, empty_parts, grown, pattern_count, set_up
from cranny.sim.record import DONE, JOBS, RUNS, SKIPPED, ReplayRecord, RunColumns

PAUSE_EVERY = 8192  # arrivals, to report progress
# Of the time that a job's communication takes, the share that lengthens its iterations in these networks.
STRETCH: dict[Slowdown, float] = {isolated: 1.0, instant: 0.0}


def compiled_replay(
    cluster: Cluster, policy: Policy, network: Slowdown, jobs: JobColumns
) -> "CompiledReplay | None":
    """Return a compiled replay if cluster, policy, network and jobs allow it; None if not."""
    simple = len({machine.gpus for machine in cluster.machines}) == 1 and jobs.any_type
    if (
        simple
        and isinstance(policy, QueuePolicy)
        and policy.order == "fifo"
        and isinstance(policy.placer, FirstChoices)
    ):
        return CompiledReplay(cluster, policy.placer, network)
    return None


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
        self._held = empty_parts()
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
        draft = pointer(
            (self._drafter or greedy(fewest=False)).draft, self._arrays, PlacementRequest(1, 0, 1.0, 1.0)
        )
        serve = {
            replay_kernel.PLACE: self._place,
            replay_kernel.CHECK: self._check,
            replay_kernel.STUCK: self._skip_first,
            replay_kernel.ADD_PATTERN: self._add_pattern,
            replay_kernel.LEARN_SPLIT: self._learn_split,
            replay_kernel.GROW: self._grow,
        }
        pause = PAUSE_EVERY
        while (
            why := replay_kernel.advance(replay, self._arrays, self._held, draft, pause)
        ) != replay_kernel.FINISHED:
            if why != replay_kernel.PAUSED:
                serve[why](replay, jobs)
                continue
            if progress is not None:
                progress(pause)
            pause += PAUSE_EVERY
        return self._record(replay, jobs)

    def _place(self, replay: replay_kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Place the first job of the queue, or report that it must wait."""
        job = jobs[_first_job(replay)]
        self._update_accounting(replay)
        placement = self._placer.place(job, self._view(replay))
        if placement is None:
            replay.at[replay_kernel.ANSWER] = WAIT
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
        replay.at[replay_kernel.ANSWER] = parts

    def _add_pattern(self, replay: replay_kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Add the communication pattern of the first job of the queue."""
        index = _first_job(replay)
        patterns = add_pattern(self._arrays.patterns, int(replay.pattern[index]), exchange_graph(jobs[index]))
        self._arrays = self._arrays._replace(patterns=patterns)

    def _learn_split(self, replay: replay_kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Add what the drafter needs to the memo for the first job of the queue."""
        if self._drafter is not None and self._drafter.memo_entry is not None:
            key = self._arrays.draft.key
            self._memo.add(key, self._drafter.memo_entry(jobs[_first_job(replay)], [0, *key[1:].tolist()]))

    def _grow(self, replay: replay_kernel.ReplayArrays, jobs: JobColumns) -> None:  # noqa: ARG002 - one signature for all
        """Grow the arrays of what jobs hold."""
        parts, uses = len(self._arrays.draft.machine), len(self._arrays.draft.links)
        at = replay.at.tolist()
        self._held = grown(self._held, 2 * at[replay_kernel.HELD] + parts, 2 * at[replay_kernel.SENT] + uses)

    def _update_accounting(self, replay: replay_kernel.ReplayArrays) -> None:
        """Update the accounting with what happened since."""
        at, accounting, machines = replay.at, self._accounting, self._arrays.machines
        changed = replay.changed[: at[replay_kernel.CHANGED]]
        for machine, slots in zip(changed.tolist(), machines.open_slots[changed].tolist(), strict=True):
            accounting.slots[machine] = slots
            accounting.free[machine] = slots.bit_count()
        replay.is_changed[changed] = False
        at[replay_kernel.CHANGED] = 0
        *accounting.in_use, accounting.idle[-1] = _sets(self._arrays)
        accounting.in_use.append(0)  # a machine with all its GPUs free is idle
        accounting.link_use_gbps = self._arrays.links.use_gbps.tolist()
        accounting.link_users = self._arrays.links.users.tolist()

    def _check(self, replay: replay_kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Skip a job that would not be placed on the empty cluster: it would block the others for good."""
        index = int(replay.queue[replay.at[replay_kernel.TAIL] - 1])
        reason = self._feasibility.why_not(jobs[index], self._placer)
        if reason is not None:
            self._skip(replay, index, reason)
            replay.at[replay_kernel.TAIL] -= 1

    def _skip_first(self, replay: replay_kernel.ReplayArrays, jobs: JobColumns) -> None:
        """Skip the first job of the queue, which does not start although nothing runs."""
        index = _first_job(replay)
        self._update_accounting(replay)
        reason = self._placer.why_wait(jobs[index], self._view(replay))
        self._skip(replay, index, never_fits(reason))
        replay.at[replay_kernel.HEAD] += 1

    def _skip(self, replay: replay_kernel.ReplayArrays, index: int, reason: str) -> None:
        arrived = int(replay.at[replay_kernel.NEXT_JOB]) - 1
        self._skipped.append((arrived, index, reason))

    def _view(self, replay: replay_kernel.ReplayArrays) -> Snapshot:
        """Return the cluster as of the last update."""
        return Snapshot(
            self._accounting, int(replay.at[replay_kernel.STARTS]), float(replay.level[replay_kernel.NOW_S]), ()
        )

    def _record(self, replay: replay_kernel.ReplayArrays, jobs: JobColumns) -> ReplayRecord:
        """Return everything in columns."""
        done = replay.ended[: replay.at[replay_kernel.ENDED]]
        run_columns = RunColumns(
            replay.gpus[done].astype(float),
            replay.duration_s[done],
            replay.slowdown[done],
            replay.first_sample[done],
            replay.past_sample[done],
        )
        samples = replay.samples[: replay.at[replay_kernel.SAMPLES]]
        return ReplayRecord(self._jobs(replay, jobs, done), self._runs(replay, jobs, done), samples, run_columns)

    def _jobs(
        self, replay: replay_kernel.ReplayArrays, jobs: JobColumns, done: npt.NDArray[np.int64]
    ) -> pl.DataFrame:
        skipped = self._reasons(replay)
        rows = np.concatenate([done, np.fromiter(skipped, np.int64, len(skipped))])
        submit_s = replay.submit_s[rows]
        known = pl.Series(np.arange(len(rows)) < len(done))  # of the jobs that ran

        def ran(values: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> pl.Series:
            """Return values of jobs, empty for those that did not run."""
            return pl.Series(values).set(~known, None)

        start_s, finish_s = ran(replay.start_s[rows]), ran(replay.finish_s[rows])
        return pl.DataFrame(
            {
                "job_id": jobs.ids.gather(rows),
                "gpus": replay.gpus[rows],
                "model": jobs.models.gather(rows),
                "tenant": jobs.tenants.gather(rows),
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

    def _reasons(self, replay: replay_kernel.ReplayArrays) -> dict[int, str]:
        """Return the jobs that were skipped, in the order in which that was found, and why."""
        capacity = self.cluster.gpus
        larger = np.flatnonzero(replay.gpus > capacity).tolist()
        reasons = [(at, at, too_large(int(replay.gpus[at]), capacity)) for at in larger]
        return {job: reason for _, job, reason in sorted([*reasons, *self._skipped], key=itemgetter(0))}

    def _runs(
        self, replay: replay_kernel.ReplayArrays, jobs: JobColumns, done: npt.NDArray[np.int64]
    ) -> pl.DataFrame:
        count = np.maximum(replay.parts[done], 1)
        job = np.repeat(done, count)  # of each row
        nth = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)  # part of its job
        drafted = replay.parts[job] > 0
        part = np.where(drafted, replay.first_part[job] + nth, 0)
        return pl.DataFrame(
            {
                "job_id": jobs.ids.gather(job),
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


def _first_job(replay: replay_kernel.ReplayArrays) -> int:
    """Return the first job of the queue."""
    return int(replay.queue[replay.at[replay_kernel.HEAD]])


def _sets(arrays: PlacementArrays) -> list[int]:
    """Return the machines with each number of GPUs free, as sets."""
    sets = arrays.machines.sets
    width = sets.itemsize * sets.shape[1]
    words = sets.tobytes()
    return [int.from_bytes(words[at : at + width], "little") for at in range(0, len(words), width)]
