"""cranny: one cost for all that a placement uses up, in GPU-seconds, and a queue that keeps what it promises.

Each paper minimises one term of one cost: Titan (ICNP 2024) the idle machines opened and the traffic between
machines, NetPack (ASPLOS 2024) the contention on links, HAS (TPDS 2024) the time that jobs wait for each other.
This policy adds them up. A job that runs for `seconds` on one machine costs on a set of machines

    own       (slowdown - 1) x seconds x GPUs: its communication, on the links as they are loaded
    others    what running jobs lose by the links that it shares with them
    types     what GPUs of the type that suits it best would cost less, by its speed there and their price
    machines  GPUs of a machine x seconds that it is in use longer: jobs that end together share machines
    holes     GPUs left over that jobs of the sizes seen lately could not use x seconds

and goes where the sum is least; equal sums are decided by what leaves the largest later job most room. It waits
for one machine, one rack or whole machines, if that is expected sooner than what it saves, and no longer.

The queue is sorted by submission + patience x length x sqrt(GPUs): short and small jobs pass others, and no job is
passed for ever, since the keys of later jobs grow. Where its first jobs compete for GPUs, those come earlier that
fit together better (`lookahead`). A job that would end in the tail of the completion times if it waited longer is
tried first, and seconds that jobs lose there count more (`tail`). The first job that does not fit is promised a
start: when enough GPUs are expected to be free. Others may start as long as they leave it that. A running job is
stopped for a short one only if in all less is lost than gained (`preemption`), a large one for many small ones
together (`making_way`), and is promised when it goes on at the latest (`stops`). Every so often running jobs
that state their restart move where that pays (`moves`).

As long as jobs run or wait that can be resized, GPUs are divided among all jobs, if their restarts are short
(`dividing`): in order of the queue, or by the exact shares of `has-resets`.

Where a network says that links are shared only while jobs communicate, those that contend are shifted, so that
they send at other times, and machines are priced by how well they do (`shifting`). A service says so as well, and
option `phases` tells it to a simulation on another network. Nothing else depends on the network of a simulation,
and no weight is fitted to one trace.
"""

import math
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

from cranny.core.backfill import DEPTH, remaining_s
from cranny.core.constrained_placer import lacks_room
from cranny.core.protocol import UNRESTRICTED, JobRules
from cranny.core.snapshot import ALL, Snapshot, Waiting
from cranny.model.cluster import Cluster, mask_of
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start, Stop
from cranny.model.validate import counted, not_negative, yes_or_no
from cranny.policies._shared.candidates import as_trained
from cranny.policies._shared.resize import all_jobs, elastic
from cranny.policies.cranny import logged_promises
from cranny.policies.cranny.dividing import GpuDivision
from cranny.policies.cranny.durations import DurationEstimates
from cranny.policies.cranny.gpu_prices import GpuPrices
from cranny.policies.cranny.moves import actions
from cranny.policies.cranny.policy_moves import EVERY_S, PolicyMoves
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.restarts import restart_s
from cranny.policies.cranny.tail import CompletionTimes

if TYPE_CHECKING:
    from cranny.policies.cranny.followed import Followed
    from cranny.policies.cranny.placing import Priced
    from cranny.policies.cranny.wait_explanation import WaitMemory

PATIENCE = 10.0  # lengths of a job, times the root of its GPUs, for which later jobs may pass it
TRIED = 8  # jobs at the front of the queue for which others may be stopped
FEWER = 2.0  # seconds that a job need not wait, for each that it runs longer with fewer workers
MARGIN = 0.7  # seconds that must be gained for each that is lost by stopping a job


class Cranny:
    """Place jobs where they cost the fewest GPU-seconds in all; let short ones pass within a bound."""

    order = "backfill"

    def __init__(
        self,
        *,
        contention: bool = True,
        machines: bool = True,
        holes: bool = True,
        rank_map: bool = True,
        racks: bool = True,
        wait: bool = True,
        preempt: bool = True,
        tail: bool = True,
        lookahead: bool = True,
        types: bool = True,
        resize: bool = True,
        shift: bool = True,
        phases: bool = False,
        patience: float = PATIENCE,
        margin: float = MARGIN,
        move_every_s: float = EVERY_S,
    ) -> None:
        self.contention = yes_or_no(contention, "cranny: contention")
        self.machines = yes_or_no(machines, "cranny: machines")
        self.holes = yes_or_no(holes, "cranny: holes")
        self.rank_map = yes_or_no(rank_map, "cranny: rank_map")
        self.racks = yes_or_no(racks, "cranny: racks")
        self.wait = yes_or_no(wait, "cranny: wait")
        self.patience = not_negative(patience, "cranny: patience")
        self.preempt = yes_or_no(preempt, "cranny: preempt")
        self.tail = yes_or_no(tail, "cranny: tail")
        self.lookahead = yes_or_no(lookahead, "cranny: lookahead")
        self.margin = not_negative(margin, "cranny: margin")
        self.types = yes_or_no(types, "cranny: types")
        self.resize = yes_or_no(resize, "cranny: resize")
        self.shift = yes_or_no(shift, "cranny: shift")
        # Whether links are shared only while jobs communicate, and iterations of jobs drift, as in a service.
        self.in_phases = self.drifting = yes_or_no(phases, "cranny: phases")
        self._division: GpuDivision | None = None  # once a job comes that can be resized
        self.own_moves = PolicyMoves(move_every_s)
        self.rules = UNRESTRICTED
        self._durations: DurationEstimates | None = None  # once a job does not say how long it runs
        self.completion_times = CompletionTimes()
        self.gpu_prices = GpuPrices()
        self._at: Followed | None = None  # what is known of the cluster, from the first view on
        self._decided = False  # anything, since it follows the cluster
        self._memory: WaitMemory | None = None  # of waiting jobs, from the policy that this is a copy of
        self._recalled: WaitMemory | None = None  # what it goes on from when it begins to follow the cluster

    def with_rules(self, rules: JobRules) -> "Cranny":
        """Return the same policy, which keeps the constraints of jobs and stops only those that allow it."""
        ruled = deepcopy(self)
        ruled.rules = rules
        return ruled

    def expect_phases(self, *, drifting: bool = False) -> None:
        """Shift jobs, and price links as they are shared with shifts."""
        self.in_phases, self.drifting = True, self.drifting or drifting

    # -- the queue ---------------------------------------------------------------------------------------

    def key(self, waiting: Waiting) -> float:
        """Order the queue: a job may be passed by those that come so much later."""
        job = waiting.job
        if self.resize and elastic(job) and not waiting.attained_gpu_s:
            if self._division is None:
                self._division = GpuDivision(self.patience, lookahead=self.lookahead)
            self._division.see(job, self.length_s(job))
        if self._at is None:
            return queue_key(job, self.left_s(waiting), self.patience)
        if waiting.attained_gpu_s:
            self._at.requeued(waiting)
        else:
            self._at.see(job)
        return self._at.enqueue(waiting)

    def length_s(self, job: Job) -> float:
        """Return how long a job is expected to run in all on one machine."""
        seconds = job.duration_s if job.duration_s is not None else self._estimated_s(job, 0.0)
        return seconds if self.rules is UNRESTRICTED else self._within_limit(job, seconds)

    def _within_limit(self, job: Job, seconds: float, ran_s: float = 0.0) -> float:
        """Return how long a run goes on at most that would go on so long: it is ended at its time limit."""
        limit_s = self.rules.limit_s_of(job.id)
        return seconds if limit_s is None else min(seconds, max(0.0, limit_s - ran_s))

    def left_s(self, waiting: Waiting) -> float:
        """Return how long a job is expected to run from now on, on one machine."""
        job = waiting.job
        if not waiting.attained_gpu_s:
            return self.length_s(job)
        if job.duration_s is None:
            return self._within_limit(job, self._estimated_s(job, waiting.attained_gpu_s / job.gpus))
        known = None if self._at is None else self._at.left_s(job.id)
        left_s = remaining_s(job, waiting.attained_gpu_s, 1.0) if known is None else known
        return self._within_limit(job, left_s)

    def _estimated_s(self, job: Job, ran_s: float) -> float:
        """Return how long a job that does not say it is expected to run on; estimates learn from then on."""
        if self._durations is None:
            self._durations = DurationEstimates()
        return self._durations.remaining(job, ran_s).median_s

    def plan(self, view: Snapshot) -> Plan:
        """Start, stop and move jobs; once there is nothing more to do, shift those that share links."""
        at = self._follow(view, self._durations)
        self._decided = self._decided or at is self._at
        at.forget_gone(view.waiting)
        if not (view.waiting or len(at.promises) or self._division or self.own_moves.begun or at.phased):
            return Plan(view.version)  # only waiting jobs could give it anything to do
        plan = self._placed(view, at)
        if plan.actions or at.phased is None:
            return plan
        return Plan(view.version, tuple(at.phased.shifts()))

    def _placed(self, view: Snapshot, at: "Followed") -> Plan:
        """Start the first job of the queue that can, as long as the one before it that cannot is not delayed."""
        if self._division is not None and self._division.wanted(view):
            return self._divide(view, at, self._division)
        for waiting in at.to_try(view):
            found = self._start(waiting, view, at)
            if found is not None:
                return Plan(view.version, (Start(waiting.job, found.placement, waiting.attained_gpu_s),))
        if self.preempt and (self.rules is UNRESTRICTED or any(map(self.rules.may_stop, view.running))):
            plan = self._make_way(view, at)
            if plan is not None:
                return plan
            queue = at.in_reach(view.waiting, TRIED)
            for place, waiting in enumerate(queue):
                plan = self._preempt(waiting, view, at, queue[:place])
                if plan is not None:
                    return plan
        return Plan(view.version, actions(self.own_moves.at(view, self, at)))

    def _divide(self, view: Snapshot, at: "Followed", division: GpuDivision) -> Plan:
        """Divide GPUs among jobs without constraints, of which those that may not be stopped keep what they have.

        A job with constraints or resources has the GPUs that it asks for, and none of the others gets machines
        promised to it.
        """
        jobs = list(all_jobs(view))
        if self.rules is UNRESTRICTED and all(job.resources is None for job in jobs):
            return division.plan(view, at)
        apart = {job.id for job in jobs if job.resources is not None or self.rules.constraints_of(job.id)}
        for waiting in at.to_try(view):
            found = self._start(waiting, view, at) if waiting.job.id in apart else None
            if found is not None:
                return Plan(view.version, (Start(waiting.job, found.placement, waiting.attained_gpu_s),))
        kept = at.promises.kept_from("", view.now_s, math.inf)
        divided = view.only(~mask_of(kept)) if kept else view
        fixed = apart.union(each for each in view.running if not self.rules.may_stop(each))
        return division.plan(divided.hiding(fixed), at)

    def left_after(self, job: Job, done_s: float, ran_s: float = 0.0) -> float:
        """Return how long a job runs on that did so many seconds of its work, and ran so long at a stretch."""
        left_s = self._estimated_s(job, done_s) if job.duration_s is None else max(0.0, job.duration_s - done_s)
        return self._within_limit(job, left_s, ran_s)

    def _make_way(self, view: Snapshot, at: "Followed") -> Plan | None:
        """Stop a job on several machines for many that need one machine each, if that pays."""
        if not at.gpus.jobs_on_links:
            return None
        queue = [
            (each, self.left_s(each))
            for each in at.in_reach(view.waiting, DEPTH)
            if each.job.gpus <= at.largest
            and (each.job.id == at.head or each.job.id not in at.promises)
            and self.rules.constraints_of(each.job.id) is None
            and each.job.resources is None
            and each.job.speeds is None  # how long others run depends on the type that they get
        ]
        queue = [each for each in queue if view.eligible(each[0].job) == view.eligible(queue[0][0].job)]
        found = at.stops.make_way(queue, at.head, view) if queue else None
        if found is None:
            return None
        at.stops.stop([found.stopped], {start.job.id for start in found.starts}, view)
        stop = Stop(found.stopped.running.job.id, f"made way for {counted(len(found.starts), 'smaller job')}")
        return Plan(view.version, (stop, *found.starts))

    def _preempt(self, waiting: Waiting, view: Snapshot, at: "Followed", ahead: Sequence[Waiting]) -> Plan | None:
        """Stop running jobs for a waiting one, if that pays; those `ahead` of it go first."""
        job = waiting.job
        wanted = self.rules.constraints_of(job.id)
        if job.resources is not None or (wanted is not None and wanted.per_machine is not None):
            return None  # GPUs alone would not be enough
        free = job.gpus <= at.gpus.total and job.gpus <= view.available(job).gpus
        if free and (wanted is None or lacks_room(job, view, wanted) is None):
            return None  # it waits for something else
        waiter = at.expected.waiter(waiting, view, ahead)
        stopped = at.stops.in_place_of(waiter, view)
        if not stopped:
            return None
        if stopped[0].machine is not None and job.gpus <= at.largest:
            machine, note = stopped[0].machine, f"in place of {stopped[0].running.job.id}, which goes on later"
            waiter = waiter.running_for(restart_s(waiting) + at.types.seconds_on(machine, job, waiter.length_s))
            placement = view.placement(job, (machine,) * job.gpus, note=note)
        else:
            found = at.placed_without(stopped, job, waiter.length_s, view, wanted)
            if found is None:
                return None
            waiter = waiter.running_for(restart_s(waiting) + found.takes_s)
            placement = found.placement
        if not at.stops.pay(waiter, stopped, placement, view):
            return None
        at.stops.stop(stopped, {job.id}, view)
        stops = [Stop(each.running.job.id, f"preempted by job {job.id!r}") for each in stopped]
        return Plan(view.version, (*stops, Start(job, placement, waiting.attained_gpu_s)))

    def next_s(self, view: Snapshot) -> float:
        """Return when a job gives up waiting for a better place, a stopped one must go on, or moves are due."""
        moves_s = self.own_moves.next_s(view.now_s)
        if self._at is None:
            return moves_s
        return min([moves_s, *(each for each in self._at.latest_s() if each > view.now_s)])

    @property
    def at_rest(self) -> bool:
        """Whether nothing is promised, tried again at some time, learned, divided, moved or shifted."""
        at = self._at
        return (
            at is not None
            and not (at.promises.by_job or at.refused)
            and self._durations is None
            and self._division is None
            and not self.own_moves.begun
            and at.phased is None
        )

    def place_first(self, job: Job, view: Snapshot) -> Placement | None:
        """Place a job that comes while none waits, if one machine has room: there it starts in any case."""
        seconds = job.duration_s
        if seconds is None or not self.at_rest or elastic(job) or view.eligible(job) != ALL:
            return None
        if self.own_moves.may_move(job):
            return None  # once it runs, moves are looked for
        idle, in_use = view.machines.idle, view.machines.in_use
        if not (any(in_use[job.gpus :]) or any(idle[job.gpus :])):
            return None
        if self.rules is not UNRESTRICTED and self.rules.constraints_of(job.id) is not None:
            return None
        self._decided = True
        at = self._follow(view)
        at.see(job)
        found = at.placing.on_one_machine(job, at.gpus.seen_by(job, view), view, seconds)
        return None if found is None else found.placement

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job now where it costs least."""
        wanted = self.rules.constraints_of(job.id)
        found = self._follow(view).placing.best(job, view, self.length_s(job), constraints=wanted)
        return None if found is None else found.placement

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say what a job was promised, which machine it waits for, or whose promise comes first."""
        if self._division is not None and self._division.wanted(view):
            return self._division.why_wait(job, view)
        short = lacks_room(job, view, self.rules.constraints_of(job.id))
        known = self._known
        if known is None or known.cluster is not view.cluster:  # it has decided nothing yet: what would it decide
            trial = deepcopy(self)
            trial.plan(view)
            known = trial._known  # noqa: SLF001 - one of its own kind
        return known.why(job.id, view.now_s, short) if known is not None else short or "can start now"

    @property
    def _known(self) -> "WaitMemory | None":
        """What is known of waiting jobs: once it has decided, by itself."""
        return self._at.memory() if self._at is not None and self._decided else self._memory

    def follow(self, view: Snapshot) -> None:
        """Take over what has started and ended, and learn how long jobs run, without deciding."""
        self._follow(view, self._durations)

    def promised_starts(self) -> dict[str, float]:
        """Return when waiting jobs start at the latest, without what is only estimated."""
        known = self._known
        promises = known.promises if known is not None else ()
        return {each.job_id: each.start_s for each in promises if known and each.start_s < known.estimated_s}

    def promises(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what waiting jobs were promised, by their ids, as plain values that a log keeps."""
        return logged_promises.written(self._at) if self._at is not None else {}

    def recall(self, promises: Mapping[str, Mapping[str, Any]], cluster: Cluster) -> None:
        """Go on from what was promised to jobs of this cluster."""
        memory = logged_promises.read(promises, cluster)
        if self._at is not None and self._at.cluster is cluster:
            self._at.recall(memory)
        else:
            self._recalled = memory

    def going_on(self, changed: str | None = None) -> "Cranny":
        """Return a copy that keeps what was promised, but to a job that is changed."""
        copied = deepcopy(self)
        known = self._known
        # What is set is of its own kind.
        copied._recalled = known.without(changed) if known and changed else known  # noqa: SLF001
        return copied

    def __deepcopy__(self, memo: dict[int, object]) -> "Cranny":
        """Copy the options, what was learned, and what is known of waiting jobs; it follows the cluster anew."""
        copied = copy(self)
        # What is set is of its own kind.
        copied._durations = deepcopy(self._durations, memo)  # noqa: SLF001
        copied.completion_times = deepcopy(self.completion_times, memo)
        copied.gpu_prices = deepcopy(self.gpu_prices, memo)
        copied._division = deepcopy(self._division, memo)  # noqa: SLF001
        copied.own_moves = deepcopy(self.own_moves, memo)
        copied._memory = self._known  # noqa: SLF001
        copied._at, copied._decided = None, False  # noqa: SLF001
        return copied

    def _start(self, waiting: Waiting, view: Snapshot, at: "Followed") -> "Priced | None":
        """Return where a job starts now; None if it must or should wait, and then note until when."""
        job, now_s, eligible = waiting.job, view.now_s, view.eligible(waiting.job)
        promised = at.promises.is_due(job.id, now_s)
        seconds = self.left_s(waiting)
        found = None
        soonest_s = now_s + restart_s(waiting) + at.types.least_s(job, seconds)
        if promised or at.promises.allow(job.id, job.gpus, now_s, soonest_s, eligible):
            found = at.placed(waiting, view, seconds)
            if found is None:
                found = self._with_fewer(waiting, view, at)
            if found is None:
                at.promise_start(waiting, view)
            elif len(found.placement.machines) < job.gpus:
                return found
            elif at.waits(job, view, seconds, found):
                return None
        if found is not None:
            end_s = now_s + found.takes_s
            if promised or at.promises.allow(job.id, job.gpus, now_s, end_s, eligible):
                return found
        if job.id in at.promises and not at.promises.must_keep(job.id):
            at.withdraw(job.id)  # it chose machines on which it may not start now, and waits like others again
        at.refuse(job)
        return None

    def _with_fewer(self, waiting: Waiting, view: Snapshot, at: "Followed") -> "Priced | None":
        """Return where a job starts with fewer workers than it asks for, if it ends well before it would else."""
        job, now_s = waiting.job, view.now_s
        workers = min(job.gpus - 1, view.available(job).gpus)
        if not self.resize or job.least_gpus is None or workers < job.least_gpus or job.speeds is not None:
            return None
        seconds = self.left_s(waiting)
        longer_s = seconds * job.gpus / workers
        # An iteration communicates about as long with fewer workers, so that need not be compared.
        if now_s + FEWER * (longer_s - seconds) >= at.expected.earliest_s(job, view):
            return None
        found = at.placed(waiting._replace(job=as_trained(job, workers)), view, longer_s)
        if found is None:
            return None
        end_s = now_s + found.takes_s
        due = at.promises.is_due(job.id, now_s)
        return found if due or at.promises.allow(job.id, workers, now_s, end_s, view.eligible(job)) else None

    def _follow(self, view: Snapshot, durations: DurationEstimates | None = None) -> "Followed":
        """Take over what changed since the last view."""
        at = self._at
        if at is None or at.cluster is not view.cluster or view.is_what_if:
            at = self._followed_anew(view)
        at.follow(view, durations)
        return at

    def _followed_anew(self, view: Snapshot) -> "Followed":
        """Begin to follow a cluster; one of a what-if leaves no trace."""
        from cranny.policies.cranny.followed import Followed  # compiles, so it is imported only where it is used

        at = Followed(view.cluster, self)
        if not view.is_what_if:
            self._at = at
            if self._recalled is not None and self._recalled.cluster is view.cluster:
                at.recall(self._recalled)
            self._recalled = None
        return at
