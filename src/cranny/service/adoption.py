"""Which attempts of an earlier service can be adopted, which must be stopped, and which are held."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cranny.backends.protocol import Launch
from cranny.channel.control import Control
from cranny.service.executor import AttemptStop, Executor
from cranny.service.fencing import is_away, may_run
from cranny.service.job_record import Attempt, JobRecord
from cranny.service.job_records import JobRecords
from cranny.service.locations import Location


@dataclass(frozen=True)
class Adoption:
    """The attempts that may have processes, by what is to be done about them."""

    current: list[Launch] = field(default_factory=list)
    leaving: list[Launch] = field(default_factory=list)  # those that are to be stopped
    stopping: list[AttemptStop] = field(default_factory=list)  # how they are
    away: list[Launch] = field(default_factory=list)  # at other locations: they may run, and hold their GPUs
    given_up: list[Launch] = field(default_factory=list)  # of these, those whose host is said to be dead
    followed: list[JobRecord] = field(default_factory=list)  # jobs with attempts that can be seen

    @classmethod
    def of(
        cls,
        records: JobRecords,
        location: Location,
        launch_of: Callable[[JobRecord, Attempt], Launch],
        stopping_of: Callable[[JobRecord, Attempt], AttemptStop],
    ) -> "Adoption":
        """Sort the attempts of the log."""
        found = cls()
        for record in records.jobs.values():
            visible = False
            for attempt in may_run(record):
                what = launch_of(record, attempt)
                if is_away(location, records, record, attempt):
                    given_up = (record.id, attempt.number) in records.fenced
                    (found.given_up if given_up else found.away).append(what)
                    continue
                visible = True
                if attempt in record.leaving:
                    found.leaving.append(what)
                    found.stopping.append(stopping_of(record, attempt))
                else:
                    found.current.append(what)
            if visible:
                found.followed.append(record)
        known = {(what.job_id, what.attempt) for what in found.current}
        for (job_id, number), attempt in records.fenced.items():
            owner = records.jobs[job_id]  # it stays in memory as long as it has such attempts
            if (job_id, number) not in known and not is_away(location, records, owner, attempt):
                found.leaving.append(launch_of(owner, attempt))  # its host is back
        return found

    def hand_over(
        self, executor: Executor, records: JobRecords, control_of: Callable[[JobRecord, Attempt], Control]
    ) -> None:
        """Let the executor do what is to be done about them."""
        for what in self.current:
            record = records.jobs[what.job_id]
            executor.set_control(what.job_id, what.attempt, control_of(record, record.attempts[-1]))
        executor.hold([*self.away, *self.given_up])
        executor.adopt(self.current, self.leaving, self.stopping)
        for what in self.given_up:
            executor.give_up(what.job_id, what.attempt)
        for record in records.jobs.values():
            if record.status == "stopping":
                executor.stop(record.id, record.attempts[-1].number)
