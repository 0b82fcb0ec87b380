"""Replays a trace with a compiled event loop, where cluster, policy and network allow it.

The outcome is the same, to the last bit, as that of `Replay`. Most jobs of most logs fit one machine, and their
placement follows from the free GPUs alone: these are placed in compiled code, and so are jobs on several machines,
if the placer has a drafter and the machines that the job can use are equal. For other jobs the placer is called as
in `Replay`, once the accounting is up to date.
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
from cranny.core.feasibility import Feasibility, never_fits
from cranny.core.jit import pointer
from cranny.core.protocol import FIFO, Drafter, Drafting, FirstChoices, Policy, Slowdown
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.core.traffic import GIGA, SILENT, communication, exchange_graph, isolated
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.errors import PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.networks import instant
from cranny.sim.fast import replay_arrays as kernel
from cranny.sim.fast.kernel_setup import JobColumns, pattern_count, set_up, set_up_groups, set_up_lines
from cranny.sim.fast.kinds import kind_arrays, kinds_of
from cranny.sim.fast.replay_kernel import advance, go_on, take_out
from cranny.sim.held_before import HeldBefore, placed_before
from cranny.sim.record import DONE, JOBS, RUNS, SKIPPED, ReplayRecord, RunColumns

PAUSE_EVERY = 8192  # arrivals, to report progress
# Of the time that a job's communication takes, the share that lengthens its iterations in these networks.
STRETCH: dict[Slowdown, float] = {isolated: 1.0, instant: 0.0}
# Orders in which a job keeps its place among those that wait, and none is stopped.
ORDERS = frozenset({"fifo", "sjf", "priority", "backfill"})


def compiled_replay(
    cluster: Cluster, policy: Policy, network: Slowdown, jobs: JobColumns, held_before: HeldBefore | None = None
) -> "CompiledReplay | None":
    """Return a compiled replay if cluster, policy, network and jobs allow it; None if not."""
    if not isinstance(policy, QueuePolicy) or not isinstance(policy.placer, FirstChoices) or not jobs.is_rigid:
        return None
    if policy.order not in ORDERS or (policy.order == "backfill" and policy.slowdown is not network):
        return None
    replay = CompiledReplay(cluster, policy.placer, network, held_before, policy.order)
    return replay if len(replay.kinds(jobs)[1]) <= kernel.MOST_KINDS else None


class CompiledReplay:
    """One simulation in an order in which jobs keep their places."""

    def __init__(
        self,
        cluster: Cluster,
        placer: FirstChoices,
        network: Slowdown = isolated,
        held_before: HeldBefore | None = None,
        order: str = FIFO,
    ) -> None:
        self.cluster = cluster
        self._held_before = held_before or {}
        self._placer = placer
        self._network = network
        self._order = order
        self._drafter = _drafter(placer) if network in STRETCH else None
        self._accounting = Accounting(cluster)  # machines and links as of the last update; it holds no jobs
        self._feasibility = Feasibility(cluster)
        self._empty = ClusterState(cluster).snapshot()
        self._memo = Memo(len(self._empty.machines.idle), 1 + 2 * len(cluster.machines) + cluster.gpus)
        setting = self._drafter.setting if self._drafter is not None else 0.0
        self._arrays: PlacementArrays = build_arrays(
            cluster, placer, self._memo.table, pattern_count(cluster), setting
        )
        drafter = self._drafter or greedy(fewest=False)
        # Made here, since replays may run in threads: Numba loads what it knows of pointers only in one at a time.
        self._draft_pointer = pointer(drafter.draft, self._arrays, PlacementRequest(1, 0, 1.0, 1.0, 0))
        ints, bits = np.zeros(1024, np.int64), np.zeros(1024, np.uint64)
        self._held = kernel.PartArrays(ints, bits, ints.copy(), np.zeros(1024))
        self._kinds: tuple[JobColumns, tuple[Ints, list[int]]] | None = None  # of the jobs that were asked about
        self._skipped: list[tuple[int, int, str]] = []  # the last arrival till then, the job, the reason

    def kinds(self, jobs: JobColumns) -> tuple[Ints, list[int]]:
        """Return the kind of each job, and the machines of each kind as sets."""
        if self._kinds is None or self._kinds[0] is not jobs:
            self._kinds = jobs, kinds_of(jobs, self._empty)
        return self._kinds[1]

    def run(self, jobs: JobColumns, progress: Callable[[int], None] | None = None) -> ReplayRecord:
        """Replay jobs in the order of their submission until all are done."""
        kind, sets = self.kinds(jobs)
        kinds = kind_arrays(kind, sets, self._empty, self._placer)
        queues = kernel.QueueArrays(kinds, set_up_groups(kind, kinds), set_up_lines(kinds))
        replay = set_up(
            self.cluster,
            jobs,
            kind,
            kinds,
            order=self._order,
            drafts=self._drafter is not None,
            refuses_by_size=self._drafter is not None and self._drafter.refuses_by_size,
            fragments_before_idle=self._placer.fragments_before_idle,
            stretch=STRETCH.get(self._network, 0.0),
        )
        self._go_on(replay, queues, jobs)
        pause = PAUSE_EVERY
        while (
            why := advance(replay, self._arrays, queues, self._held, self._draft_pointer, pause)
        ) != kernel.FINISHED:
            if why != kernel.PAUSED:
                self._serve(why, replay, queues, jobs)
                continue
            if progress is not None:
                progress(pause)
            pause += PAUSE_EVERY
        return self._record(replay, kinds, jobs)

    def _serve(self, why: int, replay: kernel.ReplayArrays, queues: kernel.QueueArrays, jobs: JobColumns) -> None:
        """Do what the kernel stopped for."""
        asked = int(replay.at[kernel.ASKED])
        if why == kernel.PLACE:
            self._place(jobs[asked], replay, queues)
        elif why == kernel.CHECK:
            self._check(replay, queues, jobs)
        elif why == kernel.STUCK:
            self._skip_first(replay, queues, jobs)
        elif why == kernel.ADD_PATTERN:
            number = int(replay.pattern[asked])
            patterns = add_pattern(self._arrays.patterns, number, exchange_graph(jobs[asked]))
            self._arrays = self._arrays._replace(patterns=patterns)
        elif why == kernel.LEARN_SPLIT:
            self._learn_split(jobs[asked], int(queues.kinds.size[replay.kind[asked]]))
        else:
            self._grow(replay)

    def _place(self, job: Job, replay: kernel.ReplayArrays, queues: kernel.QueueArrays) -> None:
        """Place a job, or report that it must wait."""
        self._update_accounting(replay, queues)
        placement = self._placer.place(job, self._view(replay))
        if placement is None:
            replay.at[kernel.ANSWER] = WAIT
            return
        for machine, gpus in placement.counts.items():
            if self._accounting.free[machine] < gpus:
                raise PlacementError(f"job {job.id!r} needs {gpus} GPUs of machine {machine}, which are not free")
        replay.at[kernel.ANSWER] = self._draft(job, placement)

    def _draft(self, job: Job, placement: Placement) -> int:
        """Write a placement as the draft that the kernel starts; return its parts."""
        held = placement.counts
        cost = communication(self.cluster, job, placement.machines) if len(held) > 1 else SILENT
        draft, parts, links = self._arrays.draft, len(held), len(cost.link_gbps)
        draft.machine[:parts] = list(held)
        draft.gpus[:parts] = list(held.values())
        draft.links[:links] = list(cost.link_gbps)
        draft.gbps[:links] = list(cost.link_gbps.values())
        draft.at[PARTS], draft.at[LINKS] = parts, links
        draft.cost[CROSS_BYTES] = cost.cross_bytes
        draft.cost[SLOWDOWN] = self._network(job, cost) if cost.comm_s else 1.0
        return parts

    def _go_on(self, replay: kernel.ReplayArrays, queues: kernel.QueueArrays, jobs: JobColumns) -> None:
        """Start those of the first jobs that ran before where they were."""
        if not self._held_before:
            return
        first = [jobs[at] for at in range(int((replay.submit_s == replay.submit_s[0]).sum()))]
        placed = placed_before(self.cluster, self._held_before, first)
        for index, job in enumerate(first):
            if job.id in placed:
                self._draft(job, placed[job.id])
                while go_on(replay, self._arrays, queues, self._held, index) == kernel.GROW:
                    self._grow(replay)

    def _learn_split(self, job: Job, size: int) -> None:
        """Add what the drafter needs to the memo for a job on machines of a size."""
        if self._drafter is not None and self._drafter.memo_entry is not None:
            key = self._arrays.draft.key
            self._memo.add(key, self._drafter.memo_entry(job, [0, *key[1 : size + 1].tolist()], self.cluster))

    def _grow(self, replay: kernel.ReplayArrays) -> None:
        """Grow the arrays of what jobs hold."""
        parts = 2 * int(replay.at[kernel.HELD]) + len(self._arrays.draft.machine)
        uses = 2 * int(replay.at[kernel.SENT]) + len(self._arrays.draft.links)
        sizes = zip(self._held, (parts, parts, uses, uses), strict=True)
        self._held = kernel.PartArrays._make(np.resize(column, size) for column, size in sizes)

    def _update_accounting(self, replay: kernel.ReplayArrays, queues: kernel.QueueArrays) -> None:
        """Update the accounting with what happened since."""
        accounting, every = self._accounting, queues.kinds.sets[0]
        changed = replay.changed[: replay.at[kernel.CHANGED]]
        open_slots = self._arrays.machines.open_slots[changed].tolist()
        for machine, slots in zip(changed.tolist(), open_slots, strict=True):
            accounting.slots[machine] = slots
            accounting.free[machine] = slots.bit_count()
        replay.is_changed[changed] = False
        replay.at[kernel.CHANGED] = 0
        words, width = every.tobytes(), every.itemsize * every.shape[1]
        sets = [int.from_bytes(words[at : at + width], "little") for at in range(0, len(words), width)]
        # Of the machines with so many GPUs free, those that have no more are idle.
        whole = self._empty.machines.idle
        accounting.idle[:] = [machines & size for machines, size in zip(sets, whole, strict=True)]
        accounting.in_use[:] = [machines & ~size for machines, size in zip(sets, whole, strict=True)]
        accounting.link_use_gbps = self._arrays.links.use_gbps.tolist()
        accounting.link_users = self._arrays.links.users.tolist()

    def _check(self, replay: kernel.ReplayArrays, queues: kernel.QueueArrays, jobs: JobColumns) -> None:
        """Skip arrived jobs that would not be placed on the empty cluster: they would block others for good."""
        first, past = int(replay.at[kernel.FIRST_ARRIVED]), int(replay.at[kernel.NEXT_JOB])
        waiting = (first + np.flatnonzero(replay.is_waiting[first:past])).tolist()
        reasons = {job: self._feasibility.why_not(jobs[job], self._placer) for job in waiting}
        for job, reason in reasons.items():
            if reason is not None:
                self._skip(job, reason, replay, queues)
            elif replay.look[job]:  # such jobs need no further check
                replay.is_feasible[replay.look[job]] = True

    def _skip_first(self, replay: kernel.ReplayArrays, queues: kernel.QueueArrays, jobs: JobColumns) -> None:
        """Skip the first job of the queue, which does not start although nothing runs."""
        groups = queues.groups
        first = int(replay.by_rank[groups.queue[groups.head[groups.head < groups.tail]].min()])
        self._update_accounting(replay, queues)
        self._skip(first, never_fits(self._placer.why_wait(jobs[first], self._view(replay))), replay, queues)

    def _skip(self, job: int, reason: str, replay: kernel.ReplayArrays, queues: kernel.QueueArrays) -> None:
        """Take a job out of the queue for good; others are served anew."""
        self._skipped.append((int(replay.at[kernel.NEXT_JOB]) - 1, job, reason))
        take_out(replay, queues, job)

    def _view(self, replay: kernel.ReplayArrays) -> Snapshot:
        """Return the cluster as of the last update."""
        version, now_s = int(replay.at[kernel.STARTS]), float(replay.level[kernel.NOW_S])
        return Snapshot(self._accounting, version, now_s, ())

    def _record(self, replay: kernel.ReplayArrays, kinds: kernel.KindArrays, jobs: JobColumns) -> ReplayRecord:
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
        return ReplayRecord(
            self._jobs(replay, kinds, jobs, done), self._runs(replay, jobs, done), samples, run_columns
        )

    def _jobs(
        self, replay: kernel.ReplayArrays, kinds: kernel.KindArrays, jobs: JobColumns, done: Ints
    ) -> pl.DataFrame:
        larger = np.flatnonzero(replay.gpus > kinds.capacity[replay.kind]).tolist()
        too_large = ((at, at, self._feasibility.why_too_large(jobs[at]) or "") for at in larger)
        found = [*too_large, *self._skipped]
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
