"""The search for moves that pay: groups are tried, the best is made in a what-if, and others are tried again."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import accumulate, takewhile
from typing import NamedTuple

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.traffic import SILENT
from cranny.model.cluster import mask_of
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.cranny.durations import worked_s
from cranny.policies.cranny.free_gpus import FreeGpus
from cranny.policies.cranny.gpu_prices import GpuPrices
from cranny.policies.cranny.moves import MoveGain, MoveGroup, MoveRules, ProposedMove, Purpose, restart_s
from cranny.policies.cranny.outlook import ExpectedRun, Outlook, OutlookChange
from cranny.policies.cranny.placing import Placing
from cranny.policies.cranny.type_costs import TypeCosts
from cranny.policies.cranny.unshared_machines import unshared

TOGETHER = 16  # jobs of one machine that move, at most
PARTS = 32  # of one job that leave machines whose links others use, at most
WAITING = 4  # jobs of the queue that may start
MACHINES = 256  # that are tried to be left, those in use longest first
ROOMS = 2  # machines on which room is tried to be made for one job
SPREAD = 4  # machines of a job that leaves one of them; jobs on more are only brought together
LINK_TRIALS = 64  # with other jobs on links, after which no new ones are begun

Try = tuple[Purpose, int | str]  # what a group is tried for, and the machine or job that it is about


def proposed_moves(view: Snapshot, rules: MoveRules) -> list[MoveGroup]:
    """Return the moves that pay now, in the order in which they can be made."""
    if not any(rules.movable(running.submitted) for running in view.all_running().values()):
        return []
    return MoveSearch(view, rules).run()


class MovesMade(NamedTuple):
    """A what-if: the view with some jobs elsewhere, and how these are expected to run there."""

    view: Snapshot
    runs: dict[str, ExpectedRun]


class Candidate(NamedTuple):
    """A group of moves that pays."""

    group: MoveGroup
    made: MovesMade
    change: OutlookChange


class MoveSearch:
    """The cluster as it would be with the moves found so far."""

    def __init__(self, view: Snapshot, rules: MoveRules) -> None:
        self._view = view
        self._rules = rules
        self._moves_left = rules.most
        self._fixed: set[str] = set()  # jobs that do not move, or not again
        self._waiters: dict[str, Job] = {}  # jobs of the queue that need room on one machine
        self._version = 0
        runs = {}
        for job_id, running in view.all_running().items():
            job = running.submitted
            runs[job_id] = ExpectedRun(running, max(0.0, self._left_s(running)))
            if not rules.movable(job) or running.resized is not None or running.placement.spare:
                self._fixed.add(job_id)  # those that hold more than they need, or less, are for their policy
        self._outlook = Outlook(view.cluster, runs, rules.counted_s)
        self._gpus = FreeGpus(view.cluster)
        for job_id, run in runs.items():
            self._gpus.set(run.running, view.now_s + self._outlook.end_s[job_id])
        self._gpus.follow_machines(view)
        # Jobs on GPUs of several speeds stay where they are.
        types = TypeCosts(view.cluster, GpuPrices(), choosing=False)
        self._placing = Placing(self._gpus, types, None, rank_map=True, racks=True)
        for waiting in view.waiting[:WAITING]:
            if not self._add_waiter(waiting):
                break

    def run(self) -> list[MoveGroup]:
        """Return groups of moves until none pays any more."""
        groups: list[MoveGroup] = []
        while found := self._round():
            groups += found
        return groups

    def _round(self) -> list[MoveGroup]:
        """Try all groups; make the best, and then the others in order as far as they still pay."""
        tries = list(self._tries())
        heap = [
            (-found.group.net_gpu_s, number, self._version, found)
            for number, each in enumerate(tries)
            if (found := self._candidate(each, links=self._outlook.link_trials < LINK_TRIALS)) is not None
        ]
        heapify(heap)
        made = []
        while heap:
            _, number, version, found = heappop(heap)
            if version != self._version:
                again = self._candidate(tries[number])
                if again is None:
                    continue
                if heap and again.group.net_gpu_s < -heap[0][0]:
                    heappush(heap, (-again.group.net_gpu_s, number, self._version, again))
                    continue
                found = again
            self._make(found)
            made.append(found.group)
        return made

    def _tries(self) -> Iterator[Try]:
        """Yield what to try."""
        for job_id in self._waiters:
            yield "start", job_id
        runs, until_s = self._outlook.runs, self._outlook.until_s
        linked = [job_id for job_id, run in runs.items() if run.uses_links and self._may_move(job_id)]
        end_s = self._outlook.end_s
        for job_id in sorted(linked, key=lambda job_id: runs[job_id].work_s - end_s[job_id]):
            yield "gather", job_id
        cluster = self._view.cluster
        machines = self._outlook.machines_in_use()
        machines.sort(key=lambda machine: -cluster.machines[machine].gpus * until_s.get(machine, 0.0))
        for machine in machines[:MACHINES]:
            yield "empty", machine

    def _candidate(self, what: Try, *, links: bool = True) -> Candidate | None:
        """Return the best group for a purpose, perhaps only of jobs that use no links; None if none pays."""
        purpose, about = what
        if purpose == "empty":
            found = self._leaving(int(about), links=links)
        elif about in self._fixed or (purpose == "gather" and not links):
            return None
        else:
            found = self._making_room(str(about))
            if purpose == "gather":
                found = [*found, *self._elsewhere([str(about)], ()), *self._apart(str(about))]
        return max(found, key=lambda each: each.group.net_gpu_s, default=None)

    def _left_s(self, running: Running) -> float:
        now_s = self._view.now_s
        if self._rules.running_left_s is not None:
            return self._rules.running_left_s(running, now_s)
        return self._rules.left_s(running.submitted, worked_s(running, now_s))

    # -- groups of moves ---------------------------------------------------------------------------------

    def _leaving(self, machine: int, *, links: bool) -> list[Candidate]:
        """Return groups in which the jobs of a machine that end last go elsewhere: one, two, and so on."""
        jobs = self._outlook.on(machine)[: min(TOGETHER, self._moves_left)]
        going = list(takewhile(lambda job_id: self._may_leave(job_id, links=links), jobs))
        return self._elsewhere(going, (machine,))

    def _may_leave(self, job_id: str, *, links: bool) -> bool:
        """Say whether a job may leave a machine, perhaps only if it uses no links."""
        run = self._outlook.runs[job_id]
        return self._may_move(job_id) and (not run.uses_links or (links and len(run.running.held) <= SPREAD))

    def _elsewhere(self, job_ids: Sequence[str], kept: Collection[int]) -> list[Candidate]:
        """Return the groups that pay in which the first of some jobs move, the first two, and so on."""
        # Before machines are looked for: what would be saved if they had links and machines to themselves?
        costs = accumulate(self._restart_gpu_s(job_id) for job_id in job_ids)
        alone: dict[str, ExpectedRun] = {}
        last = 0
        for number, (job_id, cost) in enumerate(zip(job_ids, costs, strict=True), 1):
            run = self._outlook.runs[job_id]
            alone[job_id] = run._replace(running=run.running._replace(communication=SILENT))
            if self._pays(self._outlook.most_saved(alone), cost):
                last = number
        candidates = []
        for made in self._relocated(job_ids[:last], kept):
            found = self._judged(made)
            if found is not None:
                candidates.append(found)
        return candidates

    def _making_room(self, job_id: str) -> list[Candidate]:
        """Return groups in which jobs leave a machine so that another has room on it."""
        run = self._outlook.runs[job_id]
        job, held = run.running.submitted, run.running.held
        waits = job_id in self._waiters
        options = []
        for machine in self._allowed(job):
            own = 0 if waits else held.get(machine, 0).bit_count()
            missing = job.gpus - self._view.free_on(machine) - own
            going = self._fewest(machine, missing, job_id) if missing > 0 else []
            if going:
                cost = sum(self._restart_gpu_s(each) for each in going)
                options.append((cost, machine, going))
        candidates = []
        for _, machine, going in sorted(options)[:ROOMS]:
            trials = self._relocated(going, (machine,))
            if len(trials) < len(going):
                continue
            place = partial(Snapshot.placement, job=job, machines=(machine,) * job.gpus)
            found = self._followed_by(job_id, trials[-1], place)
            if found is not None:
                candidates.append(found)
        return candidates

    def _followed_by(
        self, job_id: str, made: MovesMade, place: Callable[[Snapshot], Placement]
    ) -> Candidate | None:
        """Return the group in which a job moves, or starts, once others made room for it, if that pays."""
        run, waits = self._outlook.runs[job_id], job_id in self._waiters
        job = run.running.submitted
        view = made.view if waits else made.view.without(job_id)
        placement = place(view)
        there = ExpectedRun(view.as_running(job, placement), run.left_s, 0.0 if waits else restart_s(job))
        if not (waits or self._may_be(there)):
            return None
        followed = MovesMade(view.after(placement, job), {**made.runs, job_id: there})
        return self._judged(followed, job_id if waits else None)

    def _apart(self, job_id: str) -> list[Candidate]:
        """Return groups in which a job leaves machines where others use links, too: the first, the first two, ...

        Each for one without such jobs; those that have no room beside it go elsewhere.
        """
        run = self._outlook.runs[job_id]
        job, on_links = run.running.submitted, self._gpus.on_links
        counts = dict(run.running.placement.counts)
        shared = [machine for machine in counts if on_links[machine] > 1]
        if not shared or job.resources is not None or self._rules.constraints_of(job_id) is not None:
            return []
        if not self._pays(self._outlook.most_saved({job_id: run}), self._restart_gpu_s(job_id)):
            return []
        candidates, going = [], list[str]()
        usable = self._view.eligible(job) & self._view.up_machines
        shared.sort(key=lambda machine: (-on_links[machine], counts[machine]))
        for machine in shared[:PARTS]:
            found = self._unshared(job, counts, machine)
            if found is None:
                continue
            other, leaving = found
            going += leaving
            counts[other] = counts.pop(machine)
            trials = self._relocated(going, list(counts))
            if len(trials) < len(going) or len(going) >= self._moves_left:
                break
            if mask_of(counts) & ~usable:
                continue  # it could not go back to a machine that takes no jobs any more
            made = trials[-1] if trials else MovesMade(self._view, {})
            group = self._followed_by(job_id, made, partial(self._placing.on, job, tuple(sorted(counts.items()))))
            candidates += [] if group is None else [group]
        return candidates

    def _unshared(self, job: Job, counts: Mapping[int, int], machine: int) -> tuple[int, list[str]] | None:
        """Return a machine without jobs on links for a job's GPUs of another, and the jobs that leave it."""
        for other in unshared(job, counts, machine, self._view, self._gpus, self._rules.kept):
            missing = counts[machine] - self._view.free_on(other)
            leaving = self._fewest(other, missing, job.id) if missing > 0 else []
            if leaving or missing <= 0:
                return other, leaving
        return None

    def _allowed(self, job: Job) -> Iterator[int]:
        """Yield the machines that could hold all of a job."""
        view, wanted = self._view, self._rules.constraints_of(job.id)
        allowed = view.eligible(job) & view.up_machines
        if wanted is not None:
            alone = wanted.spread == 1 and wanted.per_machine in (None, job.gpus)
            allowed &= wanted.allowed(view.cluster) if alone else 0
        allowed &= ~mask_of(self._rules.kept)
        if job.resources is not None:
            allowed = 0  # GPUs alone would not be enough
        for machine, described in enumerate(view.cluster.machines):
            if described.gpus >= job.gpus and allowed >> machine & 1:
                yield machine

    def _fewest(self, machine: int, missing: int, job_id: str) -> list[str]:
        """Return jobs of a machine that hold so many GPUs of it: the smallest that does, or the largest first."""
        held = [
            (self._outlook.runs[each].running.held[machine].bit_count(), each)
            for each in self._outlook.on(machine)
            if self._may_move(each) and each != job_id
        ]
        chosen: list[str] = []
        while held and missing > 0:
            enough = [each for each in held if each[0] >= missing]
            best = min(enough) if enough else max(held)
            held.remove(best)
            chosen.append(best[1])
            missing -= best[0]
        return chosen if missing <= 0 and len(chosen) < self._moves_left else []

    def _relocated(self, job_ids: Sequence[str], kept: Collection[int]) -> list[MovesMade]:
        """Return the view with the first of some jobs elsewhere, with two, and so on as far as there is room."""
        trials: list[MovesMade] = []
        undo: list[tuple[Running, float]] = []
        view, now_s = self._view, self._view.now_s
        runs: dict[str, ExpectedRun] = {}
        for job_id in job_ids:
            run = self._outlook.runs[job_id]
            job, delay_s = run.running.submitted, restart_s(run.running.submitted)
            view = view.without(job_id)
            self._gpus.set(run.running, -math.inf)
            undo.append((run.running, now_s + self._outlook.end_s[job_id]))
            placement = self._place(job, view, run.left_s + delay_s, kept)
            if placement is None or placement.counts == run.running.placement.counts:
                break
            there = ExpectedRun(view.as_running(job, placement), run.left_s, delay_s)
            if not self._may_be(there):
                break
            self._gpus.set(there.running, now_s + there.least_s)
            undo.append((there.running, -math.inf))
            view = view.after(placement, job)
            runs = {**runs, job_id: there}
            trials.append(MovesMade(view, runs))
        for running, end_s in reversed(undo):
            self._gpus.set(running, end_s)
        return trials

    def _place(self, job: Job, view: Snapshot, seconds: float, kept: Collection[int] = ()) -> Placement | None:
        """Return where a job would cost least within its constraints; None if it does not fit."""
        closed = dict.fromkeys([*kept, *self._rules.kept], 0)
        found = self._placing.best(job, view, seconds, closed, self._rules.constraints_of(job.id))
        return None if found is None else found.placement

    def _may_be(self, there: ExpectedRun) -> bool:
        """Say whether a job may run elsewhere; how long is expected from its placement, as if it were alone."""
        running = there.running
        return self._rules.may_be_on(running.job.id, running.placement, self._view.now_s + there.least_s)

    # -- what they are worth -----------------------------------------------------------------------------

    def _judged(self, made: MovesMade, starts: str | None = None) -> Candidate | None:
        """Return a group of moves if it pays; what it saves most says what it is for."""
        outlook = self._outlook
        moved = [job_id for job_id in made.runs if job_id != starts]
        cost = sum(self._restart_gpu_s(job_id) for job_id in moved)
        if not self._pays(outlook.most_saved(made.runs) + cost, cost):
            return None
        change = outlook.change(made.runs)
        moves = tuple(
            [
                ProposedMove(
                    job_id,
                    made.runs[job_id].running.job.gpus,
                    outlook.runs[job_id].running.placement,
                    made.runs[job_id].running.placement,
                    self._restart_gpu_s(job_id),
                )
                for job_id in moved
            ]
        )
        gain = MoveGain(
            outlook.saved_by_jobs(change, moved) + cost,
            outlook.saved_by_jobs(change, [job_id for job_id in change.end_s if job_id not in made.runs]),
            outlook.saved_by_machines(change),
            0.0 if starts is None else outlook.saved_by_jobs(change, [starts]),
        )
        if not self._pays(gain.total_gpu_s, cost):
            return None
        left = {machine for move in moves for machine in move.source.counts}
        emptied = tuple(sorted(machine for machine in left if made.view.is_idle(machine)))
        if starts is not None:
            purpose: Purpose = "start"
        elif gain.own_gpu_s + gain.others_gpu_s > gain.machines_gpu_s:
            purpose = "gather"
        else:
            purpose = "empty" if emptied else "free"
        return Candidate(MoveGroup(purpose, moves, gain, emptied, starts), made, change)

    def _may_move(self, job_id: str) -> bool:
        return job_id not in self._fixed and job_id not in self._waiters

    def _pays(self, gain_gpu_s: float, cost_gpu_s: float) -> bool:
        return gain_gpu_s > (1.0 + self._rules.margin) * cost_gpu_s

    def _restart_gpu_s(self, job_id: str) -> float:
        job = self._outlook.runs[job_id].running.job
        return restart_s(job) * job.gpus

    # -- what changes ------------------------------------------------------------------------------------

    def _make(self, found: Candidate) -> None:
        """Take a group over."""
        now_s = self._view.now_s
        runs = self._outlook.runs
        for job_id in found.made.runs:
            if job_id not in self._waiters:
                self._gpus.set(runs[job_id].running, -math.inf)
        self._outlook.apply(found.change)
        self._view = found.made.view
        for job_id, run in found.made.runs.items():
            self._gpus.set(run.running, now_s + self._outlook.end_s[job_id])
        self._fixed |= found.made.runs.keys()
        self._waiters.pop(found.group.starts or "", None)
        self._moves_left -= len(found.group.moves)
        self._version += 1

    def _add_waiter(self, waiting: Waiting) -> bool:
        """Expect a job of the queue as it would go on without moves; False if those behind it must wait for it."""
        job, view = waiting.job, self._view
        if job.gpus > view.available(job).gpus:
            return False
        allowed = list(self._allowed(job))
        if not allowed or any(view.free_on(machine) >= job.gpus for machine in allowed):
            return True  # it is for several machines, or can start
        left_s = self._rules.left_s(job, waiting.attained_gpu_s / job.gpus)
        options = [*self._later(job, left_s, allowed), *self._split(job, left_s)]
        if options:
            changes = [self._outlook.change({job.id: each}) for each in options]
            self._outlook.apply(max(changes, key=self._outlook.saved))
            self._waiters[job.id] = job
        return True

    def _later(self, job: Job, left_s: float, allowed: Sequence[int]) -> Iterable[ExpectedRun]:
        """Yield how a waiting job would run on the machine that first has room for it."""
        from cranny.policies.cranny.machine_kernel import NONE, first_ready  # compiles, so only where it is used

        view = self._view
        kept = [machine for machine in range(len(view.cluster.machines)) if machine not in set(allowed)]
        ready = first_ready(self._gpus.releases_for(job, view, kept), job.gpus, self._placing.room.slots)
        machine, ready_s = int(ready[0]), float(ready[1])
        if machine != NONE and ready_s < math.inf:
            placement = Placement((machine,) * job.gpus)
            running = Running(job, placement, {machine: 0}, SILENT, view.now_s)
            yield ExpectedRun(running, left_s, max(0.0, ready_s - view.now_s))

    def _split(self, job: Job, left_s: float) -> Iterable[ExpectedRun]:
        """Yield how a waiting job would run on several machines at once."""
        placement = self._place(job, self._view, left_s)
        if placement is not None:
            yield ExpectedRun(self._view.as_running(job, placement), left_s)
