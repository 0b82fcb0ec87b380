"""Replay a trace with the event loop compiled, where the set-up allows it.

The outcome is the same, to the last bit, as that of `Replay`. Most jobs of most logs fit one machine, and where
they go follows from the free GPUs alone: those never come to Python. Nor do those on several machines, if the
placer has a drafter and the case is simple. For the others the placer is asked as ever, with books that are
brought up to date first.
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
from cranny.sim.fast.kernel_setup import JobColumns, longer, nothing_held, pattern_count, set_up
from cranny.sim.record import DONE, JOBS, RUNS, SKIPPED, Record, Stretches

PAUSE_EVERY = 8192  # arrivals, to report progress
# Of the time that a job's communication takes, the share that makes its iterations longer in these networks.
STRETCH: dict[Slowdown, float] = {isolated: 1.0, instant: 0.0}


def compiled_for(cluster: Cluster, policy: Policy, network: Slowdown, jobs: JobColumns) -> "Compiled | None":
    """Return a compiled replay if everything is as simple as it needs; None if not."""
    simple = len({machine.gpus for machine in cluster.machines}) == 1 and jobs.any_type
    if (
        simple
        and isinstance(policy, QueuePolicy)
        and policy.order == "fifo"
        and isinstance(policy.placer, FirstChoices)
    ):
        return Compiled(cluster, policy.placer, network)
    return None


class Compiled:
    """One simulation of a cluster of machines alike, first come, first served."""

    def __init__(self, cluster: Cluster, placer: FirstChoices, network: Slowdown = isolated) -> None:
        self.cluster = cluster
        self._placer = placer
        self._network = network
        self._drafter = _drafter(placer) if network in STRETCH else None
        self._accounting = Accounting(
            cluster
        )  # when Python looks, true of machines and links; it knows of no jobs
        self._possible = Feasibility(cluster)
        self._memo = Memo(cluster.machines[0].gpus + 1, 1 + 2 * len(cluster.machines) + cluster.gpus)
        setting = self._drafter.setting if self._drafter is not None else 0.0
        self._arrays: PlacementArrays = build_arrays(
            cluster, placer, self._memo.table, pattern_count(cluster), setting
        )
        self._held = nothing_held()
        self._skipped: list[tuple[int, int, str]] = []  # the last arrival till then, the job, the reason

    def run(self, jobs: JobColumns, progress: Callable[[int], None] | None = None) -> Record:
        """Replay jobs in the order of their submission until all are done."""
        board = set_up(
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
            replay_kernel.STUCK: self._drop,
            replay_kernel.MEET: self._meet,
            replay_kernel.TEACH: self._teach,
            replay_kernel.FULL: self._make_room,
        }
        pause = PAUSE_EVERY
        while (
            why := replay_kernel.advance(board, self._arrays, self._held, draft, pause)
        ) != replay_kernel.FINISHED:
            if why != replay_kernel.PAUSED:
                serve[why](board, jobs)
                continue
            if progress is not None:
                progress(pause)
            pause += PAUSE_EVERY
        return self._record(board, jobs)

    def _place(self, board: replay_kernel.Board, jobs: JobColumns) -> None:
        """Place the first job of the queue, or let it wait."""
        job = jobs[_first(board)]
        self._look(board)
        placement = self._placer.place(job, self._view(board))
        if placement is None:
            board.at[replay_kernel.ANSWER] = WAIT
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
        board.at[replay_kernel.ANSWER] = parts

    def _meet(self, board: replay_kernel.Board, jobs: JobColumns) -> None:
        """Write down the pattern of the first job of the queue."""
        index = _first(board)
        patterns = add_pattern(self._arrays.patterns, int(board.pattern[index]), exchange_graph(jobs[index]))
        self._arrays = self._arrays._replace(patterns=patterns)

    def _teach(self, board: replay_kernel.Board, jobs: JobColumns) -> None:
        """Add what the drafter needs to the memo for the first job of the queue."""
        if self._drafter is not None and self._drafter.memo_entry is not None:
            key = self._arrays.draft.key
            self._memo.add(key, self._drafter.memo_entry(jobs[_first(board)], [0, *key[1:].tolist()]))

    def _make_room(self, board: replay_kernel.Board, jobs: JobColumns) -> None:  # noqa: ARG002 - as its likes
        """Make room to note where more jobs sit."""
        parts, uses = len(self._arrays.draft.machine), len(self._arrays.draft.links)
        at = board.at.tolist()
        self._held = longer(self._held, 2 * at[replay_kernel.HELD] + parts, 2 * at[replay_kernel.SENT] + uses)

    def _look(self, board: replay_kernel.Board) -> None:
        """Bring the books up to date with what happened since."""
        at, books, machines = board.at, self._accounting, self._arrays.machines
        changed = board.changed[: at[replay_kernel.CHANGED]]
        for machine, slots in zip(changed.tolist(), machines.open_slots[changed].tolist(), strict=True):
            books.slots[machine] = slots
            books.free[machine] = slots.bit_count()
        board.is_changed[changed] = False
        at[replay_kernel.CHANGED] = 0
        *books.in_use, books.idle[-1] = _sets(self._arrays)
        books.in_use.append(0)  # a machine with all its GPUs free is idle
        books.link_use_gbps = self._arrays.links.use_gbps.tolist()
        books.link_users = self._arrays.links.users.tolist()

    def _check(self, board: replay_kernel.Board, jobs: JobColumns) -> None:
        """Skip a job that would not be placed on the empty cluster: it would block the others for good."""
        index = int(board.queue[board.at[replay_kernel.TAIL] - 1])
        reason = self._possible.why_not(jobs[index], self._placer)
        if reason is not None:
            self._skip(board, index, reason)
            board.at[replay_kernel.TAIL] -= 1

    def _drop(self, board: replay_kernel.Board, jobs: JobColumns) -> None:
        """Skip the first job of the queue, which does not start although nothing runs."""
        index = _first(board)
        self._look(board)
        reason = self._placer.why_wait(jobs[index], self._view(board))
        self._skip(board, index, never_fits(reason))
        board.at[replay_kernel.HEAD] += 1

    def _skip(self, board: replay_kernel.Board, index: int, reason: str) -> None:
        arrived = int(board.at[replay_kernel.NEXT_JOB]) - 1
        self._skipped.append((arrived, index, reason))

    def _view(self, board: replay_kernel.Board) -> Snapshot:
        """Return the cluster as Python last looked at it."""
        return Snapshot(
            self._accounting, int(board.at[replay_kernel.STARTS]), float(board.level[replay_kernel.NOW_S]), ()
        )

    def _record(self, board: replay_kernel.Board, jobs: JobColumns) -> Record:
        """Return everything in columns."""
        done = board.ended[: board.at[replay_kernel.ENDED]]
        stretches = Stretches(
            board.gpus[done].astype(float),
            board.duration_s[done],
            board.slowdown[done],
            board.first_note[done],
            board.past_note[done],
        )
        noted = board.noted[: board.at[replay_kernel.NOTES]]
        return Record(self._jobs(board, jobs, done), self._runs(board, jobs, done), noted, stretches)

    def _jobs(self, board: replay_kernel.Board, jobs: JobColumns, done: npt.NDArray[np.int64]) -> pl.DataFrame:
        skipped = self._reasons(board)
        rows = np.concatenate([done, np.fromiter(skipped, np.int64, len(skipped))])
        submit_s = board.submit_s[rows]
        known = pl.Series(np.arange(len(rows)) < len(done))  # of the jobs that ran

        def ran(values: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> pl.Series:
            """Return values of jobs, empty for those that did not run."""
            return pl.Series(values).set(~known, None)

        start_s, finish_s = ran(board.start_s[rows]), ran(board.finish_s[rows])
        return pl.DataFrame(
            {
                "job_id": jobs.ids.gather(rows),
                "gpus": board.gpus[rows],
                "model": jobs.models.gather(rows),
                "tenant": jobs.tenants.gather(rows),
                "submit_s": submit_s,
                "start_s": start_s,
                "finish_s": finish_s,
                "wait_s": start_s - submit_s,
                "jct_s": finish_s - submit_s,
                "duration_s": board.duration_s[rows],
                "slowdown": ran(board.slowdown[rows]),
                "machines": ran(np.maximum(board.parts[rows], 1)),
                "cross_traffic_gb": ran(board.cross_bytes[rows] / GIGA),
                **{name: ran(np.zeros(len(rows), np.int64)) for name in ("restarts", "moves")},
                "status": pl.Series([DONE, SKIPPED]).gather(np.repeat([0, 1], [len(done), len(skipped)])),
                "reason": pl.Series([*[None] * len(done), *skipped.values()], dtype=pl.String),
            },
            schema=JOBS,
        )

    def _reasons(self, board: replay_kernel.Board) -> dict[int, str]:
        """Return the jobs that were skipped, in the order in which that was found, and why."""
        capacity = self.cluster.gpus
        larger = np.flatnonzero(board.gpus > capacity).tolist()
        reasons = [(at, at, too_large(int(board.gpus[at]), capacity)) for at in larger]
        return {job: reason for _, job, reason in sorted([*reasons, *self._skipped], key=itemgetter(0))}

    def _runs(self, board: replay_kernel.Board, jobs: JobColumns, done: npt.NDArray[np.int64]) -> pl.DataFrame:
        count = np.maximum(board.parts[done], 1)
        job = np.repeat(done, count)  # of each row
        nth = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)  # part of its job
        drafted = board.parts[job] > 0
        part = np.where(drafted, board.first_part[job] + nth, 0)
        return pl.DataFrame(
            {
                "job_id": jobs.ids.gather(job),
                "start_s": board.start_s[job],
                "end_s": board.finish_s[job],
                "machine": np.where(drafted, self._held.machine[part], board.machine[job]),
                "gpus": np.where(drafted, self._held.slots[part], board.slots[job]),
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


def _first(board: replay_kernel.Board) -> int:
    """Return the first job of the queue."""
    return int(board.queue[board.at[replay_kernel.HEAD]])


def _sets(arrays: PlacementArrays) -> list[int]:
    """Return the machines with each number of GPUs free, as sets."""
    sets = arrays.machines.sets
    width = sets.itemsize * sets.shape[1]
    words = sets.tobytes()
    return [int.from_bytes(words[at : at + width], "little") for at in range(0, len(words), width)]
