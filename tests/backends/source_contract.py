"""What both roles of a backend must do, whatever system is below: one contract for all of them.

A harness of `tests.backends.contract` knows how a backend is made; one that is also a `SourceHarness` knows how
other people use the system below.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import get_args

import pytest
from tests.backends.contract import LONG_S, PATIENCE_S, Fault, Harness

from cranny.backends.cluster_reading import ClusterReading, ClusterSource
from cranny.backends.protocol import BackendError

UNHEARD = (BackendError, OSError)  # what a call raises that failed, or whose answer did not come


class BothRoles:
    """Starting and stopping, for every backend; a subclass has a fixture `harness`."""

    def test_an_end_is_reported_once_also_if_asked_twice(self, harness: Harness) -> None:
        harness.launch("a")
        assert [(end.job_id, end.attempt, end.reason) for end in harness.ends()] == [("a", 1, "finished")]
        assert not harness.backend.poll()
        assert not harness.backend.poll()

    def test_a_stop_ends_a_job_once_however_often_it_is_asked_for(self, harness: Harness) -> None:
        harness.backend.stop("never launched")
        harness.begun(harness.launch("a", LONG_S))
        harness.backend.stop("a")
        harness.backend.stop("a")
        assert [(end.job_id, end.reason) for end in harness.ends()] == [("a", "cancelled")]
        harness.backend.stop("a")
        assert not harness.backend.poll()

    def test_an_attempt_is_launched_once_and_the_next_one_is_another(self, harness: Harness) -> None:
        what = harness.launch("a")
        first = harness.ends()
        try:
            harness.backend.launch(what)
        except BackendError:
            pass
        else:  # the same run is found again, and its end is
            assert harness.ends() == first
        harness.launch("a", attempt=2)
        assert [(end.attempt, end.reason) for end in harness.ends()] == [(2, "finished")]

    def test_another_backend_takes_over_what_runs_and_hears_of_every_end(self, harness: Harness) -> None:
        runs = harness.begun(harness.launch("a", LONG_S))
        over = harness.over(harness.launch("b", slots=((1, 0),)))
        harness.restart()
        ended = list(harness.backend.adopt([runs, over])) or harness.ends()
        assert [(end.job_id, end.reason) for end in ended] == [("b", "finished")]
        assert not harness.backend.adopt([runs])
        harness.backend.stop("a")
        assert [(end.job_id, end.reason) for end in harness.ends()] == [("a", "cancelled")]

    def test_what_was_never_launched_is_lost(self, harness: Harness) -> None:
        what = harness.launch("a")
        harness.ends()
        harness.restart()
        never = type(what)(**{**what.__dict__, "job_id": "never", "log_dir": harness.folder / "never"})
        assert [(end.job_id, end.reason) for end in harness.backend.adopt([never])] == [("never", "lost")]

    @pytest.mark.parametrize("fault", get_args(Fault))
    def test_a_job_runs_once_and_ends_once_whatever_is_heard_of_calls(
        self, harness: Harness, fault: Fault
    ) -> None:
        what = harness.described("a", LONG_S)
        with harness.faulty(fault), pytest.raises(UNHEARD):
            harness.backend.launch(what)
        with suppress(BackendError):  # it may run already
            harness.backend.launch(what)
        harness.begun(what)
        with harness.faulty(fault), suppress(*UNHEARD):
            assert not harness.backend.poll()
        harness.restart()
        with harness.faulty(fault), suppress(*UNHEARD):
            assert not harness.backend.adopt([what])
        assert not harness.backend.adopt([what])
        with harness.faulty(fault), suppress(*UNHEARD):
            harness.backend.stop("a")
        harness.backend.stop("a")
        assert [(end.job_id, end.attempt, end.reason) for end in harness.ends()] == [("a", 1, "cancelled")]
        assert not harness.backend.poll()
        assert harness.runs() == 1


class SourceHarness(Harness):
    """Also knows how people use the system below, besides the service."""

    def below(self) -> Iterator[tuple[object, str]]:
        """Yield what can fail, reading included."""
        yield from super().below()
        yield self.source, "read"

    @property
    @abstractmethod
    def source(self) -> ClusterSource:
        """What the cluster is read from."""

    @abstractmethod
    def submit(self, user: str, gpus: int, run_s: float) -> str:
        """Submit a job that is to be placed; return its id."""

    @abstractmethod
    def cancel(self, external: str) -> None:
        """Cancel a job of the system."""

    @abstractmethod
    def start_other(self, user: str, where: Mapping[str, int]) -> str:
        """Start a job that is not to be placed; return its id."""

    @abstractmethod
    def drain(self, machine: str) -> None:
        """Let a machine take no new jobs."""

    @abstractmethod
    def fail(self, machine: str) -> None:
        """Take a machine down."""

    @abstractmethod
    def resume(self, machine: str) -> None:
        """Let a machine take jobs again."""

    @abstractmethod
    def release(self, external: str, machines: tuple[str, ...]) -> None:
        """Launch a job of the system on a machine for each rank."""

    def reads(self, holds: Callable[[ClusterReading], bool]) -> ClusterReading:
        """Wait until a reading says something."""
        waited = 0.0
        while waited < PATIENCE_S:
            reading = self.source.read()
            if holds(reading):
                return reading
            self.sleep(0.1)
            waited += 0.1
        raise AssertionError("it is never read")


class SourceContract:
    """Reading, for every source; a subclass has a fixture `harness`."""

    def test_machines_are_read_with_their_gpus(self, harness: SourceHarness) -> None:
        first, again = harness.source.read(), harness.source.read()
        assert first.cluster.gpus == sum(machine.gpus for machine in again.cluster.machines) > 0
        assert not first.failed
        assert not first.unavailable

    def test_a_job_that_waits_is_read_until_it_is_launched(self, harness: SourceHarness) -> None:
        external = harness.submit("root", 2, LONG_S)
        reading = harness.reads(lambda each: any(job.id == external for job in each.waiting))
        (job,) = [each for each in reading.waiting if each.id == external]
        assert job.spec["gpus"] == 2
        name = reading.cluster.machines[0].name
        harness.release(external, (name, name))
        reading = harness.reads(lambda each: all(job.id != external for job in each.waiting))
        assert all(each.id != external for each in reading.foreign)  # it is ours
        harness.cancel(external)
        assert [end.reason for end in harness.ends()] == ["cancelled"]

    def test_a_job_that_is_cancelled_no_longer_waits(self, harness: SourceHarness) -> None:
        external = harness.submit("root", 1, LONG_S)
        harness.reads(lambda each: any(job.id == external for job in each.waiting))
        harness.cancel(external)
        harness.reads(lambda each: all(job.id != external for job in each.waiting))

    def test_jobs_of_others_are_read_with_what_they_hold(self, harness: SourceHarness) -> None:
        name = harness.source.read().cluster.machines[1].name
        external = harness.start_other("root", {name: 3})
        reading = harness.reads(lambda each: any(job.id == external for job in each.foreign))
        (job,) = [each for each in reading.foreign if each.id == external]
        assert dict(job.gpus) == {name: 3}
        assert all(each.id != external for each in reading.waiting)
        harness.cancel(external)
        harness.reads(lambda each: all(job.id != external for job in each.foreign))

    def test_machines_out_of_service_are_read_with_the_reason(self, harness: SourceHarness) -> None:
        name = harness.source.read().cluster.machines[2].name
        harness.drain(name)
        assert harness.reads(lambda each: name in each.unavailable).unavailable[name]
        harness.resume(name)
        harness.fail(name)
        assert harness.reads(lambda each: name in each.failed).failed[name]
        harness.resume(name)
        harness.reads(lambda each: name not in each.failed and name not in each.unavailable)

    @pytest.mark.parametrize("fault", ["fails", "hangs"])
    def test_a_reading_that_fails_is_an_error_and_the_next_one_is_whole(
        self, harness: SourceHarness, fault: Fault
    ) -> None:
        external = harness.submit("root", 1, LONG_S)
        harness.reads(lambda each: any(job.id == external for job in each.waiting))
        with harness.faulty(fault), pytest.raises(UNHEARD):
            harness.source.read()
        reading = harness.source.read()
        assert [job.id for job in reading.waiting] == [external]
        assert not reading.failed
