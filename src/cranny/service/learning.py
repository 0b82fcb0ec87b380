"""Learning: what jobs measure of themselves becomes the profile of their user and name.

Averages are exponentially weighted, as HAS has them (TPDS 2024, Sec. III-C; the weight is ours, see
`policies._shared.heterogeneous.estimates`). They are kept in memory, by the thread that reads reports. What
differs enough from the profile in use is adopted by an event of the log, at most once in `LEAST_S` for each job:
so decisions follow from the log alone, and it stays small.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cranny.channel.report import Record, Resumed
from cranny.service.job_record import JobRecord, LastStep
from cranny.service.learned_profile import LearnedProfile
from cranny.service.plausible import believed, believed_rate
from cranny.service.reports import RankState, WatchedAttempt

WEIGHT = 0.3  # of a new measurement
LEAST_S = 60.0  # between two events of a job
FEWEST = 3  # iterations of a rank from which something is learned; the first ones load data and compile
MAX_KEYS = 10_000  # of users and names, in memory


def _mean(before: float | None, value: float) -> float:
    return value if before is None else before + WEIGHT * (value - before)


@dataclass(slots=True)
class _Attempt:
    """What an attempt has shown so far."""

    samples: dict[int, float] = field(default_factory=dict)  # of each rank, in an iteration
    seen: dict[int, int] = field(default_factory=dict)  # iterations of each rank
    last: LastStep | None = None  # None if it has reported no step yet
    before: LastStep | None = None  # how far the attempts before it came, as far as that is known
    resumed: bool = False  # whether it has said from where it went on


Key = tuple[str, str]  # user, and name of a job
Adopt = Callable[[str, LearnedProfile], None]  # the job that has shown it
Continued = Callable[[str, int, Resumed, int | None], None]  # a job, its attempt, and the steps that it does again
Complain = Callable[[str, str], None]  # a job, and what it says that cannot be


def _ignore(_job_id: str, _why: str) -> None:
    """Do not count what cannot be."""


class Learner:
    """Averages over what jobs report, by user and name."""

    def __init__(self, adopt: Adopt, continued: Continued, complain: Complain = _ignore) -> None:
        self._adopt, self._continued, self._complain = adopt, continued, complain
        self._lock = threading.Lock()
        self._keys: dict[str, Key] = {}  # of live jobs
        self._known: dict[Key, LearnedProfile] = {}
        self._adopted: dict[Key, LearnedProfile] = {}
        self._asked_s: dict[str, float] = {}  # when an event was last asked for, of live jobs
        self._attempts: dict[str, dict[int, _Attempt]] = {}  # of live jobs

    def follow(self, record: JobRecord, adopted: LearnedProfile | None) -> None:
        """Learn from a job that starts or runs; what its profile and its attempts are until now, the log says."""
        with self._lock:
            key = self._keys[record.id] = record.key
            attempts = self._attempts.setdefault(record.id, {})
            for each in record.attempts[-2:]:
                logged = _Attempt(last=each.last, resumed=each.resumed is not None)
                if attempts.setdefault(each.number, logged) is logged:
                    earlier = [
                        other.last for other in record.attempts[: each.number - 1] if other.last is not None
                    ]
                    logged.before = earlier[-1] if earlier else None
            if adopted is not None:
                self._adopted[key] = adopted
                self._known.setdefault(key, adopted)
            while len(self._known) > MAX_KEYS:
                old = next(iter(self._known))
                del self._known[old]
                self._adopted.pop(old, None)

    def forget(self, job_id: str) -> None:
        """Forget a job that is over; what it has shown stays."""
        with self._lock:
            self._keys.pop(job_id, None)
            self._asked_s.pop(job_id, None)
            self._attempts.pop(job_id, None)

    def last(self, job_id: str, attempt: int) -> LastStep | None:
        """Return how far an attempt of a live job came; None if it has reported no step."""
        with self._lock:
            found = self._attempts.get(job_id, {}).get(attempt)
            return None if found is None else found.last

    def take(self, watched: WatchedAttempt, rank: int, records: Sequence[Record], state: RankState) -> None:
        """Learn from records of a rank, which are possible; ask for an event if that is due."""
        with self._lock:
            key = self._keys.get(watched.job_id)
            if key is None:
                return
            known = self._known.get(key, LearnedProfile())
            attempt = self._attempt(watched)
            known = self._restarted(watched, attempt, state, known)
            for each in records:
                record, why = believed(each, watched)
                known = _learned(known, watched, rank, record, attempt)
                if why:
                    self._complain(watched.job_id, why)
            self._known[key] = known
            if not self._due(watched, key, known, records[-1].at_s):
                return
            self._asked_s[watched.job_id] = records[-1].at_s
            self._adopted[key] = known
        self._adopt(watched.job_id, known)

    def _due(self, watched: WatchedAttempt, key: Key, known: LearnedProfile, now_s: float) -> bool:
        asked_s = self._asked_s.get(watched.job_id)
        if asked_s is not None and now_s < asked_s + LEAST_S:
            return False
        # Speeds are relative: the first event waits for ranks of all types, for a while.
        if not set(watched.gpu_types) <= known.rates.keys() and now_s < watched.launched_s + LEAST_S:
            return False
        return known.differs(self._adopted.get(key, LearnedProfile()))

    def _attempt(self, watched: WatchedAttempt) -> _Attempt:
        """Return what an attempt has shown so far; of those before it only how far they came is kept."""
        attempts = self._attempts.setdefault(watched.job_id, {})
        attempt = attempts.setdefault(watched.attempt, _Attempt())
        for number in sorted(number for number in attempts if number < watched.attempt):
            earlier = attempts.pop(number)  # its last report was read before this one was launched
            attempt.before = earlier.last or attempt.before or earlier.before
        return attempt

    def _restarted(
        self, watched: WatchedAttempt, attempt: _Attempt, state: RankState, known: LearnedProfile
    ) -> LearnedProfile:
        """Learn what a restart cost: how long it took, and the steps that were done twice, if they are known."""
        at, before = state.resumed, attempt.before
        if attempt.resumed or at is None:
            return known
        attempt.resumed = True
        if watched.attempt == 1:
            if at.step:  # from a checkpoint of another job
                self._continued(watched.job_id, watched.attempt, at, 0)
            return known
        lost = None if before is None else max(0, before.step - at.step)
        self._continued(watched.job_id, watched.attempt, at, lost)
        again_s = min(lost * before.iteration_s, before.ran_s) if lost and before is not None else 0.0
        return replace(known, restart_s=_mean(known.restart_s, at.took_s + again_s))


def _learned(
    known: LearnedProfile, watched: WatchedAttempt, rank: int, record: Record, attempt: _Attempt
) -> LearnedProfile:
    """Learn from one record."""
    step, ran_s = record.step, record.at_s - watched.launched_s
    if attempt.last is not None:
        step, ran_s = max(attempt.last.step, step), max(attempt.last.ran_s, ran_s)
    attempt.last = LastStep(step, record.wall_s / record.iterations, max(0.0, ran_s))
    before = attempt.seen.get(rank, 0)
    attempt.seen[rank] = before + record.iterations
    if before < FEWEST or record.compute_s <= 0.0:
        return known
    done = record.samples or record.iterations  # a job that does not say how many counts as one an iteration
    kind, rate = watched.gpu_types[rank], done / record.compute_s
    others = [known.rates[other] for other in known.rates if other != kind]
    rates = {**known.rates, kind: believed_rate(_mean(known.rates.get(kind), rate), others)}
    attempt.samples[rank] = done / record.iterations
    ranks = len(watched.gpu_types)
    batch = sum(attempt.samples.values()) * ranks / len(attempt.samples)
    comm_start, gradient_bytes = known.comm_start, known.gradient_bytes
    if record.comm_start_s is not None:
        part = min(1.0, record.comm_start_s * record.iterations / record.compute_s)
        comm_start = _mean(comm_start, part)
    if record.gradient_bytes:
        gradient_bytes = _mean(gradient_bytes, record.gradient_bytes)
    return LearnedProfile(rates, _mean(known.batch, batch), comm_start, gradient_bytes, known.restart_s)
