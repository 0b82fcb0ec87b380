"""What every backend must do: tests for any of them, given a harness that knows how it is made and watched."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from errno import ECONNREFUSED, ETIMEDOUT
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR1
from typing import Any, Literal

import pytest

from cranny.backends.protocol import Backend, BackendError, Ended, Launch, Rank
from cranny.channel.control import Control
from cranny.model.cluster import Cluster

CLUSTER = Cluster.single_rack(machines=4, gpus_per_machine=8)
LONG_S = 600.0
PATIENCE_S = 60.0
Fault = Literal["fails", "hangs", "answers late"]


class Harness(ABC):
    """Knows how a backend is made, what its commands look like, and how time passes for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = self.make()

    @abstractmethod
    def make(self) -> Backend:
        """Make a backend; what an earlier one of this harness started goes on."""

    @abstractmethod
    def argv(self, run_s: float, exit_code: int = 0, *, stubborn: bool = False) -> tuple[str, ...]:
        """Return a command that runs for a while; a stubborn one does not end when asked to."""

    @abstractmethod
    def begun(self, what: Launch) -> Launch:
        """Wait until all ranks of an attempt run."""

    @abstractmethod
    def over(self, what: Launch) -> Launch:
        """Wait until an attempt has ended, without asking the backend."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def left(self, job_id: str) -> int:
        """Count the processes of a job, ended ones that were not reaped included."""

    @abstractmethod
    def runs(self) -> int:
        """Count how often ranks of all jobs were started."""

    def below(self) -> Iterator[tuple[object, str]]:
        """Yield what can fail: objects and names of their methods; by default those of the backend itself."""
        yield from ((self.backend, name) for name in ("launch", "stop", "adopt"))

    @contextmanager
    def faulty(self, fault: Fault) -> Iterator[None]:
        """Let everything below fail, hang, or do what it is asked for and answer too late to be heard."""

        def replaced(real: Callable[..., object]) -> Callable[..., object]:
            def call(*given: object, **named: object) -> object:
                if fault == "answers late":
                    real(*given, **named)
                raise OSError(ECONNREFUSED if fault == "fails" else ETIMEDOUT, fault)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for owner, name in self.below():
                patch.setattr(owner, name, replaced(getattr(owner, name)))
            yield

    def machine_name(self, machine: int) -> str:
        """Return what a machine is called."""
        return CLUSTER.machines[machine].name

    def launch(self, job_id: str, run_s: float = 0.0, exit_code: int = 0, **more: Any) -> Launch:
        what = self.described(job_id, run_s, exit_code, **more)
        self.backend.launch(what)
        return what

    def described(
        self,
        job_id: str,
        run_s: float = 0.0,
        exit_code: int = 0,
        *,
        slots: Sequence[tuple[int, int]] = ((0, 0),),
        attempt: int = 1,
        time_limit_s: float | None = None,
        stubborn: bool = False,
    ) -> Launch:
        """Return a launch that is not made yet."""
        return Launch(
            job_id=job_id,
            attempt=attempt,
            argv=self.argv(run_s, exit_code, stubborn=stubborn),
            ranks=tuple(Rank(rank, machine, gpu) for rank, (machine, gpu) in enumerate(slots)),
            env={},
            cwd=None,
            log_dir=self.folder / job_id / str(attempt),
            time_limit_s=time_limit_s,
            machines=tuple(self.machine_name(machine) for machine, _ in slots),
        )

    def ends(self, count: int = 1, patience_s: float = PATIENCE_S) -> list[Ended]:
        """Wait until some attempts have ended."""
        ended: list[Ended] = []
        waited = 0.0
        while len(ended) < count and waited < patience_s:
            ended += self.backend.poll()
            self.sleep(0.02)
            waited += 0.02
        return ended

    def restart(self) -> None:
        """Put another backend in the place of this one."""
        self.backend.close()
        self.backend = self.make()


class Contract:
    """The tests; a subclass has a fixture `harness`."""

    def test_says_what_there_is(self, harness: Harness) -> None:
        assert harness.backend.nodes() is CLUSTER

    def test_reports_an_end_once(self, harness: Harness) -> None:
        harness.launch("a")
        assert harness.ends() == [Ended("a", 1, 0, "finished")]
        harness.sleep(0.1)
        assert not harness.backend.poll()
        assert harness.left("a") == 0

    def test_reports_nothing_before_the_end(self, harness: Harness) -> None:
        harness.begun(harness.launch("a", LONG_S))
        assert not harness.backend.poll()
        harness.backend.stop("a")
        assert harness.ends() == [Ended("a", 1, -SIGTERM, "cancelled")]

    def test_a_rank_that_fails_ends_the_job_with_its_exit_code(self, harness: Harness) -> None:
        harness.launch("a", 0.0, 3, slots=((0, 0), (1, 0), (1, 1)))
        assert harness.ends() == [Ended("a", 1, 3, "failed")]
        assert harness.left("a") == 0

    def test_a_job_that_is_stopped_at_once_is_cancelled(self, harness: Harness) -> None:
        harness.launch("a", LONG_S)
        harness.backend.stop("a")
        (ended,) = harness.ends()
        assert (ended.job_id, ended.reason) == ("a", "cancelled")
        assert ended.exit_code in (None, -SIGTERM)  # None: nothing was started yet
        assert harness.left("a") == 0

    def test_kills_what_does_not_end_when_asked_to(self, harness: Harness) -> None:
        harness.begun(harness.launch("a", LONG_S, stubborn=True))
        harness.backend.stop("a", grace_s=0.3)
        assert harness.ends() == [Ended("a", 1, -SIGKILL, "cancelled")]
        assert harness.left("a") == 0

    def test_a_second_stop_may_shorten_the_grace(self, harness: Harness) -> None:
        harness.begun(harness.launch("a", LONG_S, stubborn=True))
        harness.backend.stop("a", grace_s=LONG_S)
        harness.sleep(0.2)
        assert not harness.backend.poll()
        harness.backend.stop("a", grace_s=0.0)
        assert harness.ends() == [Ended("a", 1, -SIGKILL, "cancelled")]

    def test_stopping_what_does_not_run_does_nothing(self, harness: Harness) -> None:
        harness.backend.stop("never launched")
        harness.over(harness.launch("a"))  # which is not known yet
        harness.backend.stop("a")
        assert harness.ends() == [Ended("a", 1, 0, "finished")]
        harness.backend.stop("a")
        harness.sleep(0.1)
        assert not harness.backend.poll()

    def test_ends_a_job_at_its_time_limit(self, harness: Harness) -> None:
        harness.launch("a", LONG_S, time_limit_s=0.3)
        assert harness.ends() == [Ended("a", 1, -SIGTERM, "timed out")]
        assert harness.left("a") == 0

    def test_a_time_limit_does_not_touch_a_job_that_keeps_it(self, harness: Harness) -> None:
        harness.launch("a", 0.1, time_limit_s=LONG_S)
        assert harness.ends() == [Ended("a", 1, 0, "finished")]

    def test_a_job_may_be_tried_again(self, harness: Harness) -> None:
        harness.launch("a", exit_code=1)
        assert harness.ends() == [Ended("a", 1, 1, "failed")]
        harness.launch("a", attempt=2)
        assert harness.ends() == [Ended("a", 2, 0, "finished")]

    def test_an_attempt_is_launched_only_once(self, harness: Harness) -> None:
        what = harness.launch("a")
        with pytest.raises(BackendError, match="'a' runs already"):
            harness.backend.launch(replace(what, ranks=(Rank(0, 3, 7),)))
        harness.ends()
        with pytest.raises(BackendError, match="'a': attempt 1 was launched before"):
            harness.backend.launch(what)

    def test_refuses_a_slot_that_another_job_holds(self, harness: Harness) -> None:
        harness.launch("a", LONG_S, slots=((0, 0), (2, 5)))
        with pytest.raises(BackendError, match=r"'b': rank 1 cannot have GPU 5 of machine \S+: job 'a' holds it"):
            harness.launch("b", slots=((0, 1), (2, 5)))
        harness.launch("c", slots=((0, 1),))  # what was refused holds nothing
        assert harness.ends() == [Ended("c", 1, 0, "finished")]
        harness.backend.stop("a")
        harness.ends()
        harness.launch("b", slots=((0, 1), (2, 5)), attempt=2)
        assert harness.ends() == [Ended("b", 2, 0, "finished")]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"argv": ()}, "the command is empty"),
            ({"argv": ("a\0b",)}, "zero byte"),
            ({"ranks": ()}, "ranks must be 0, 1, 2"),
            ({"ranks": (Rank(1, 0, 0),)}, "ranks must be 0, 1, 2"),
            ({"ranks": (Rank(0, 0, 0), Rank(1, 0, 0))}, "two ranks are on the same GPU"),
            ({"ranks": (Rank(0, 4, 0),)}, "rank 0 is on GPU 0 of machine 4, which does not exist"),
            ({"ranks": (Rank(0, 0, 8),)}, "rank 0 is on GPU 8 of machine 0, which does not exist"),
            ({"ranks": (Rank(0, -1, 0),)}, "which does not exist"),
            ({"env": {"A=B": "1"}}, "'A=B' cannot be an environment variable"),
            ({"time_limit_s": 0.0}, "the time limit must be a positive number"),
        ],
    )
    def test_refuses_what_makes_no_sense(self, harness: Harness, change: dict[str, object], message: str) -> None:
        sane = Launch("a", 1, harness.argv(0.0), (Rank(0, 0, 0),), {}, None, harness.folder / "a", None)
        with pytest.raises(BackendError, match=f"^job 'a': .*{message}"):
            harness.backend.launch(replace(sane, **change))  # type: ignore[arg-type]
        assert not harness.backend.poll()

    def test_runs_many_jobs_at_once(self, harness: Harness) -> None:
        for slot in range(16):
            harness.launch(f"job-{slot}", 0.1, slot % 3, slots=((slot // 8, slot % 8),))
        ended = {end.job_id: (end.exit_code, end.reason) for end in harness.ends(16)}
        assert ended == {f"job-{slot}": (slot % 3, "failed" if slot % 3 else "finished") for slot in range(16)}

    def test_a_running_job_has_a_channel_also_after_a_restart(self, harness: Harness) -> None:
        assert harness.backend.channel("a") is None
        what = harness.begun(harness.launch("a", LONG_S))
        found = harness.backend.channel("a")
        assert found is not None
        assert found.folder.is_dir()
        other = harness.begun(harness.launch("b", LONG_S, slots=((1, 0),)))
        assert harness.backend.channel("b") not in (None, found)
        Control(3).write(found.folder)
        harness.restart()
        assert harness.backend.channel("a") is None
        assert not harness.backend.adopt([what, other])
        assert harness.backend.channel("a") == found
        assert Control.read(found.folder) == Control(3)
        for job_id in ("a", "b"):
            harness.backend.stop(job_id)
        harness.ends(2)
        assert harness.backend.channel("a") is None

    def test_a_signal_ends_no_process_that_does_not_expect_it(self, harness: Harness) -> None:
        harness.backend.signal("never launched", SIGUSR1)
        harness.begun(harness.launch("a", LONG_S))
        harness.backend.signal("a", SIGUSR1)
        harness.sleep(0.3)
        assert not harness.backend.poll()
        harness.backend.stop("a")
        assert harness.ends() == [Ended("a", 1, -SIGTERM, "cancelled")]

    def test_a_restart_finds_what_runs_and_what_has_ended(self, harness: Harness) -> None:
        runs = harness.begun(harness.launch("runs", LONG_S, slots=((0, 0),)))
        ended = harness.over(harness.launch("ended", 0.0, 5, slots=((0, 1),)))
        never = replace(ended, job_id="never", log_dir=harness.folder / "never")
        harness.restart()
        found = harness.backend.adopt([runs, ended, never])
        assert sorted(found) == [Ended("ended", 1, 5, "failed"), Ended("never", 1, None, "lost")]
        assert not harness.backend.adopt([runs])  # known by now
        later = replace(runs, attempt=2, log_dir=harness.folder / "later")
        assert list(harness.backend.adopt([later])) == [Ended("runs", 2, None, "lost")]  # the first still runs
        with pytest.raises(BackendError, match="'runs' holds it"):
            harness.launch("other", slots=((0, 0),))
        assert not harness.backend.poll()
        harness.backend.stop("runs")
        assert harness.ends() == [Ended("runs", 1, -SIGTERM, "cancelled")]
        assert harness.left("runs") == harness.left("ended") == 0

    def test_an_end_that_was_reported_can_be_asked_for_after_a_restart(self, harness: Harness) -> None:
        what = harness.launch("a", 0.0, 4)
        assert harness.ends() == [Ended("a", 1, 4, "failed")]
        harness.restart()  # before the service could store it
        assert list(harness.backend.adopt([what])) == [Ended("a", 1, 4, "failed")]

    def test_an_adopted_job_keeps_its_exit_code(self, harness: Harness) -> None:
        what = harness.begun(harness.launch("a", 0.6, 6))
        harness.restart()
        ended = list(harness.backend.adopt([what])) or harness.ends()
        assert ended == [Ended("a", 1, 6, "failed")]
        assert harness.left("a") == 0

    def test_an_adopted_job_keeps_its_time_limit(self, harness: Harness) -> None:
        what = harness.begun(harness.launch("a", LONG_S, time_limit_s=0.6))
        harness.restart()
        ended = list(harness.backend.adopt([what])) or harness.ends()
        assert ended == [Ended("a", 1, -SIGTERM, "timed out")]
