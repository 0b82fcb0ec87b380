"""Replay a trace with the event loop compiled, where the set-up allows it.

The outcome is the same, to the last bit, as that of `Replay`. Most jobs of most logs fit one machine, and where
they go follows from the free GPUs alone: those never come to Python. For the others the placer is asked as ever,
with books that are brought up to date first.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from cranny.core.books import Books
from cranny.core.protocol import FirstChoices, Policy
from cranny.core.queue import Queued, Slowdown
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import GIGA, Communication, communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.errors import PlacementError
from cranny.model.job import Job
from cranny.sim import kernel
from cranny.sim.possible import Possible, never, too_large
from cranny.sim.record import DONE, JOBS, LEFT_OUT, NOTED, RUNS, Record, Stretches

PAUSE_EVERY = 8192  # arrivals, to report progress


class JobColumns(Protocol):
    """Jobs in order of submission, as columns and one by one."""

    @property
    def ids(self) -> pl.Series:
        """Names of the jobs."""

    @property
    def models(self) -> pl.Series:
        """Names of their models."""

    @property
    def tenants(self) -> pl.Series:
        """Whose they are."""

    @property
    def gpus(self) -> npt.NDArray[np.int32]:
        """GPUs of each job, (jobs,)."""

    @property
    def submit_s(self) -> npt.NDArray[np.float64]:
        """When each was submitted, (jobs,), rising."""

    @property
    def duration_s(self) -> npt.NDArray[np.float64]:
        """How long each runs on one machine, (jobs,)."""

    @property
    def any_type(self) -> bool:
        """Whether no job insists on a type of GPU."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Job: ...


def compiled_for(cluster: Cluster, policy: Policy, network: Slowdown, jobs: JobColumns) -> "Compiled | None":
    """Return a compiled replay if everything is as simple as it needs; None if not."""
    simple = len({machine.gpus for machine in cluster.machines}) == 1 and jobs.any_type
    if (
        simple
        and isinstance(policy, Queued)
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
        self._books = Books(cluster)  # when Python looks, true of machines and links; it knows of no jobs
        self._possible = Possible(cluster)
        self._crossing: dict[int, Communication] = {}  # running jobs that use links
        self._parts = kernel.Parts(np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.uint64))
        self._left_out: list[tuple[int, int, str]] = []  # the last arrival till then, the job, the reason

    def run(self, jobs: JobColumns, progress: Callable[[int], None] | None = None) -> Record:
        """Replay jobs in the order of their submission until all are done."""
        board = _board(self.cluster, jobs, self._placer)
        pause = PAUSE_EVERY
        while (why := kernel.advance(board, self._parts, pause)) != kernel.FINISHED:
            if why == kernel.PLACE:
                self._place(board, jobs)
            elif why == kernel.CHECK:
                self._check(board, jobs)
            elif why == kernel.STUCK:
                self._drop(board, jobs)
            else:
                if progress is not None:
                    progress(pause)
                pause += PAUSE_EVERY
        return self._record(board, jobs)

    def _place(self, board: kernel.Board, jobs: JobColumns) -> None:
        """Place the first job of the queue, or let it wait."""
        at = board.at
        index = int(board.queue[at[kernel.HEAD]])
        job = jobs[index]
        self._look(board)
        placement = self._placer.place(job, self._view(board))
        if placement is None:
            at[kernel.ANSWER] = kernel.WAIT
            return
        held = placement.counts
        for machine, gpus in held.items():
            if self._books.free[machine] < gpus:
                raise PlacementError(f"job {job.id!r} needs {gpus} GPUs of machine {machine}, which are not free")
        if len(held) > 1:
            self._use_links(board, index, job, communication(self.cluster, job, placement.machines))
        first = int(at[kernel.PARTS])
        past = first + len(held)
        if past > len(self._parts.machine):
            self._parts = _longer(self._parts, 2 * past)
        self._parts.machine[first:past] = list(held)
        self._parts.gpus[first:past] = list(held.values())
        at[kernel.ANSWER] = len(held)

    def _use_links(self, board: kernel.Board, index: int, job: Job, cost: Communication) -> None:
        """Book what a job that is about to start sends over links, and how that slows it down."""
        if cost.link_gbps:
            board.crossing[index] = True
            board.cross_bytes[index] = cost.cross_bytes
            board.slowdown[index] = self._network(job, cost) if cost.comm_s else 1.0
            self._books.turn_links(cost, 1)
            self._crossing[index] = cost

    def _look(self, board: kernel.Board) -> None:
        """Bring the books up to date with what happened since."""
        at, books = board.at, self._books
        machines = board.changed[: at[kernel.CHANGED]]
        for machine, slots in zip(machines.tolist(), board.open_slots[machines].tolist(), strict=True):
            books.slots[machine] = slots
            books.free[machine] = slots.bit_count()
        board.is_changed[machines] = False
        at[kernel.CHANGED] = 0
        *books.in_use, books.idle[-1] = _sets(board)
        books.in_use.append(0)  # a machine with all its GPUs free is idle
        for index in board.gone[: at[kernel.GONE]].tolist():
            books.turn_links(self._crossing.pop(index), -1)
        at[kernel.GONE] = 0

    def _check(self, board: kernel.Board, jobs: JobColumns) -> None:
        """Leave out a job that would not be placed on the empty cluster: it would block the others for good."""
        index = int(board.queue[board.at[kernel.TAIL] - 1])
        reason = self._possible.why_not(jobs[index], self._placer)
        if reason is not None:
            self._leave_out(board, index, reason)
            board.at[kernel.TAIL] -= 1

    def _drop(self, board: kernel.Board, jobs: JobColumns) -> None:
        """Leave out the first job of the queue, which does not start although nothing runs."""
        index = int(board.queue[board.at[kernel.HEAD]])
        self._look(board)
        reason = self._placer.why_wait(jobs[index], self._view(board))
        self._leave_out(board, index, never(reason))
        board.at[kernel.HEAD] += 1

    def _leave_out(self, board: kernel.Board, index: int, reason: str) -> None:
        arrived = int(board.at[kernel.NEXT_JOB]) - 1
        self._left_out.append((arrived, index, reason))

    def _view(self, board: kernel.Board) -> Snapshot:
        """Return the cluster as Python last looked at it."""
        return Snapshot(self._books, int(board.at[kernel.STARTS]), float(board.level[kernel.NOW_S]), ())

    def _record(self, board: kernel.Board, jobs: JobColumns) -> Record:
        """Return everything in columns."""
        done = board.ended[: board.at[kernel.ENDED]]
        stretches = Stretches(
            board.gpus[done].astype(float),
            board.duration_s[done],
            board.slowdown[done],
            board.first_note[done],
            board.past_note[done],
        )
        noted = board.noted[: board.at[kernel.NOTES]]
        return Record(self._jobs(board, jobs, done), self._runs(board, jobs, done), noted, stretches)

    def _jobs(self, board: kernel.Board, jobs: JobColumns, done: npt.NDArray[np.int64]) -> pl.DataFrame:
        left_out = self._reasons(board)
        rows = np.concatenate([done, np.fromiter(left_out, np.int64, len(left_out))])
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
                "restarts": ran(np.zeros(len(rows), np.int64)),
                "status": pl.Series([DONE, LEFT_OUT]).gather(np.repeat([0, 1], [len(done), len(left_out)])),
                "reason": pl.Series([*[None] * len(done), *left_out.values()], dtype=pl.String),
            },
            schema=JOBS,
        )

    def _reasons(self, board: kernel.Board) -> dict[int, str]:
        """Return the jobs that were left out, in the order in which that was found out, and why."""
        capacity = self.cluster.gpus
        larger = np.flatnonzero(board.gpus > capacity).tolist()
        reasons = [(at, at, too_large(int(board.gpus[at]), capacity)) for at in larger]
        return {job: reason for _, job, reason in sorted([*reasons, *self._left_out], key=itemgetter(0))}

    def _runs(self, board: kernel.Board, jobs: JobColumns, done: npt.NDArray[np.int64]) -> pl.DataFrame:
        count = np.maximum(board.parts[done], 1)
        job = np.repeat(done, count)  # of each row
        nth = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)  # part of its job
        by_python = board.parts[job] > 0
        part = np.where(by_python, board.first_part[job] + nth, 0)
        return pl.DataFrame(
            {
                "job_id": jobs.ids.gather(job),
                "start_s": board.start_s[job],
                "end_s": board.finish_s[job],
                "machine": np.where(by_python, self._parts.machine[part], board.machine[job]),
                "gpus": np.where(by_python, self._parts.slots[part], board.slots[job]),
            },
            schema=RUNS,
        )


def _board(cluster: Cluster, jobs: JobColumns, placer: FirstChoices) -> kernel.Board:
    """Set up a replay: all machines idle, no job arrived."""
    count, machines, size = len(jobs), len(cluster.machines), cluster.machines[0].gpus
    words = -(-machines // 64)
    everyone = np.zeros(words * 64, dtype=np.uint8)
    everyone[:machines] = 1
    sets = np.zeros((size + 1, words), dtype=np.uint64)
    sets[size] = np.packbits(everyone, bitorder="little").view("<u8")
    members = np.zeros(size + 1, dtype=np.int64)
    members[size] = machines
    at = np.zeros(kernel.COUNTERS, dtype=np.int64)
    at[kernel.FREE] = cluster.gpus

    def ints() -> npt.NDArray[np.int64]:
        return np.zeros(count, dtype=np.int64)

    def floats(value: float = 0.0) -> npt.NDArray[np.float64]:
        return np.full(count, value)

    return kernel.Board(
        gpus=jobs.gpus.astype(np.int64),
        submit_s=np.ascontiguousarray(jobs.submit_s),
        duration_s=np.ascontiguousarray(jobs.duration_s),
        start_s=floats(np.nan),
        finish_s=floats(np.nan),
        slowdown=floats(1.0),
        cross_bytes=floats(),
        crossing=np.zeros(count, dtype=np.bool_),
        machine=ints(),
        slots=np.zeros(count, dtype=np.uint64),
        first_part=ints(),
        parts=ints(),
        first_note=ints(),
        past_note=ints(),
        queue=ints(),
        ended=ints(),
        free=np.full(machines, size, dtype=np.int64),
        open_slots=np.full(machines, 2**size - 1, dtype=np.uint64),
        sets=sets,
        first_word=np.zeros(size + 1, dtype=np.int64),
        members=members,
        choices=_choices(placer, size),
        fragments_before_idle=placer.fragments_before_idle,
        end_s=np.empty(cluster.gpus + 1),
        end_start=np.empty(cluster.gpus + 1, dtype=np.int64),
        end_job=np.empty(cluster.gpus + 1, dtype=np.int64),
        is_changed=np.zeros(machines, dtype=np.bool_),
        changed=np.empty(machines, dtype=np.int64),
        gone=np.empty(cluster.gpus, dtype=np.int64),
        noted=np.empty((2 * count, len(NOTED))),
        at=at,
        level=np.zeros(2),
    )


def _longer(parts: kernel.Parts, room: int) -> kernel.Parts:
    """Return parts with room for more."""
    return kernel.Parts(np.resize(parts.machine, room), np.resize(parts.gpus, room), np.resize(parts.slots, room))


def _sets(board: kernel.Board) -> list[int]:
    """Return the machines with each number of GPUs free, as sets."""
    width = board.sets.itemsize * board.sets.shape[1]
    words = board.sets.tobytes()
    return [int.from_bytes(words[at : at + width], "little") for at in range(0, len(words), width)]


def _choices(placer: FirstChoices, size: int) -> npt.NDArray[np.int64]:
    """Return a placer's first choices for each number of GPUs, each row filled up with zeros."""
    choices = np.zeros((size + 1, size + 1), dtype=np.int64)
    for gpus in range(1, size + 1):
        wanted: Sequence[int] = placer.first_choices(gpus, size)
        choices[gpus, : len(wanted)] = wanted
    return choices
