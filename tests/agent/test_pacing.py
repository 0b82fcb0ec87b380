"""The agent of a running job, by a clock that moves only when it is told to."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cranny.agent.pacing import (
    PATIENCE,
    STEP,
    SUSPEND_FIRST,
    SUSPEND_MOST,
    TOLERANCE,
    WINDOW,
    Pacer,
    PacingWarning,
)
from cranny.agent.pacing_schedule import PacingSchedule
from cranny.model.circle import Circle
from cranny.model.errors import InputError
from cranny.network.phases import pacing_period
from cranny.network.phases import phased_run as phases
from cranny.network.phases.segments import PhasedJob
from tests.examples import examples


class Job:
    """A training loop in a time of its own."""

    def __init__(
        self,
        period_s: float = 0.0,
        shift_s: float = 0.0,
        *,
        now_s: float = 0.0,
        patience: float = PATIENCE,
        learn: bool = True,
        watch: Path | None = None,
    ) -> None:
        self.now_s = now_s  # by the timer
        self.set_by_s = 0.0  # what was added to the clock
        self.starts_s: list[float] = []
        self.pacer = Pacer(
            period_s,
            shift_s,
            patience=patience,
            learn=learn,
            watch=watch,
            clock=lambda: self.now_s + self.set_by_s,
            timer=lambda: self.now_s,
            sleep=self.work,
        )

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def exchange(self, exchanges_s: list[float]) -> None:
        """Do iterations that compute for half a second, and then exchange gradients."""
        for seconds in exchanges_s:
            self.pacer.step()
            self.work(0.5)
            self.work(seconds)
            self.pacer.communicated(self.now_s - seconds, self.now_s)

    def iterate(self, *works_s: float) -> list[float]:
        """Do iterations that take so long; return how long each of them waited before."""
        waits = []
        for work_s in works_s:
            waits.append(self.pacer.step())
            self.starts_s.append(self.now_s)
            self.now_s += work_s
        return waits


def test_a_shift_delays_the_next_iteration_and_no_other() -> None:
    job = Job(0.255, 0.057)
    assert job.iterate(*[0.255] * 50) == pytest.approx([0.057] + [0.0] * 49, abs=1e-9)
    assert job.pacer.report().adjustments == 0


def test_jobs_that_join_at_different_times_are_apart_by_their_shifts() -> None:
    first, second = Job(0.25, 0.0, now_s=1_800_000_000.1), Job(0.25, 0.125, now_s=1_800_000_007.03)
    for job in (first, second):
        job.iterate(*[0.25] * 8)
    assert (second.starts_s[3] - first.starts_s[5]) % 0.25 == pytest.approx(0.125, abs=1e-5)


@pytest.mark.parametrize("late", [0.0, 0.02, 0.0499])
def test_an_iteration_that_is_a_little_late_starts_at_once(late: float) -> None:
    job = Job(1.0)
    assert job.iterate(1.0 + late, 0.1)[1] == 0.0
    assert job.pacer.report().drift_s == pytest.approx(late)


@pytest.mark.parametrize(("late", "wait"), [(0.0501, 0.9499), (0.3, 0.7), (0.7, 0.3), (1.02, 0.0), (5.6, 0.4)])
def test_an_iteration_that_is_late_by_more_than_five_percent_waits_for_the_next_beat(
    late: float, wait: float
) -> None:
    job = Job(1.0)
    assert job.iterate(1.0 + late, 0.1)[1] == pytest.approx(wait)
    report = job.pacer.report()
    assert report.adjustments == 1
    assert report.drift_s == pytest.approx(late)


def test_an_iteration_that_is_early_waits_for_its_beat_and_that_is_no_adjustment() -> None:
    job = Job(1.0)
    assert job.iterate(0.9, 0.02, 0.95, 1.0) == pytest.approx([0.0, 0.1, 0.98, 0.05])
    report = job.pacer.report()
    assert report.adjustments == 0
    assert report.drift_s == pytest.approx(-0.05)


def test_drift_adds_up_until_it_is_more_than_five_percent() -> None:
    job = Job(1.0, learn=False)
    waits = job.iterate(*[1.011] * 7)  # late by 1.1, 2.2, 3.3, 4.4 and then 5.5 %
    assert waits == pytest.approx([0.0] * 5 + [0.945, 0.0])
    assert job.pacer.report().adjustments == 1


def test_adjustments_are_counted_by_the_minute() -> None:
    job = Job(0.5)
    for _ in range(2):
        job.iterate(*[0.5] * 58, 0.8)
    job.iterate(0.5)
    assert job.now_s == pytest.approx(60.5)
    assert job.pacer.report().adjustments_per_minute == pytest.approx(2 / (60.5 / 60))


def test_the_rule_is_that_of_the_simulator() -> None:
    assert TOLERANCE == pacing_period.TOLERANCE
    circle = Circle.half_up(0.2506, 50.0)  # with a period of 0.25 s: every iteration is late by 0.24 % more
    simulated = phases.run_for([PhasedJob({0: circle}, period_s=0.25)], [50.0], 600.0).outcomes[0]
    job = Job(0.25, learn=False)
    while job.now_s < 600.0:
        job.iterate(0.2506)
    assert simulated.adjustments > 50
    assert job.pacer.report().adjustments == pytest.approx(simulated.adjustments, abs=1)
    assert job.pacer.report().iterations == pytest.approx(simulated.iterations, abs=2)


SIXTY_FOURTHS = st.integers(0, 224).map(lambda number: number / 64)  # of a period: sums are exact


@settings(max_examples=examples(100))
@given(
    st.sampled_from([0.25, 1.0, 8.0]),
    SIXTY_FOURTHS,
    SIXTY_FOURTHS,
    st.lists(SIXTY_FOURTHS, min_size=2, max_size=19),
)
def test_iterations_start_on_the_next_beat_or_at_most_five_percent_late(
    period_s: float, shift: float, now: float, works: list[float]
) -> None:
    job = Job(period_s, shift * period_s, now_s=now * period_s, patience=1.0, learn=False)
    waits = job.iterate(*[work * period_s for work in works])
    starts = [start_s / period_s - shift for start_s in job.starts_s]  # in beats
    assert all(0.0 <= start % 1.0 <= TOLERANCE for start in starts)
    assert all(0.0 <= wait <= period_s for wait in waits)
    lost = 0
    for start, work, after in zip(starts, works, starts[1:], strict=False):
        ready, due = start + work, math.floor(start) + 1
        assert after >= due  # never before its beat, nor twice on one
        lost += ready > due + TOLERANCE
    assert job.pacer.report().adjustments == lost


# -- beats that a job cannot keep ------------------------------------------------------------------------------


@pytest.mark.parametrize("short", [0.001, 0.01, 0.03])
def test_a_period_that_is_short_is_learned_from_the_jobs_own_times(short: float) -> None:
    # Kept as given, a period that is 1 % short costs 17 to 19 %: every fifth or sixth iteration waits for a slot.
    period_s = 1.0 - short
    given = Job(period_s, learn=False, patience=1.0)
    given.iterate(*[1.0] * 1000)
    if short == 0.01:
        assert given.now_s == pytest.approx(1180.0, rel=0.01)
    job = Job(period_s)
    with pytest.warns(PacingWarning, match=r"iterations take 1 s: the period is 1\.0\d* s from now on, not 0\.9"):
        job.iterate(*[1.0] * 1000)
    assert job.now_s <= 1000.0 * (1.0 + STEP) + 1.0
    report = job.pacer.report()
    assert report.paced
    assert report.schedule.period_s == period_s
    assert 1.0 <= report.kept_period_s <= 1.0 + STEP
    job.pacer.update(2.0, 0.0)
    assert job.pacer.report().kept_period_s == 2.0


def test_workers_of_a_job_learn_the_same_period() -> None:
    learned = set()
    for work_s in (1.0, 1.0004, 0.9998):
        job = Job(0.985)
        with pytest.warns(PacingWarning):
            job.iterate(*[work_s] * 50)
        learned.add(job.pacer.report().kept_period_s)
    assert len(learned) == 1


def test_iterations_that_are_late_now_and_then_teach_nothing() -> None:
    job = Job(1.0)
    job.iterate(*[0.97, 0.97, 0.97, 0.97, 1.2] * 40)
    assert job.pacer.report().kept_period_s == 1.0
    assert job.pacer.report().adjustments == 39


@pytest.mark.filterwarnings("ignore::cranny.agent.pacing.PacingWarning")
def test_an_agent_lets_go_of_a_job_that_is_slower_than_its_beat_and_tries_again_later() -> None:
    job = Job(1.0, learn=False)
    waits = job.iterate(*[1.02] * 30)
    assert sum(wait > 0 for wait in waits[:WINDOW]) > 3
    assert sum(waits[WINDOW + 1 :]) == 0.0
    assert not job.pacer.report().paced
    waits = job.iterate(*[0.98] * (SUSPEND_FIRST + 100))
    assert job.pacer.report().paced  # the job has become faster meanwhile
    lost = 19  # six waits of 0.94 s are more than a fifth of a trial, whatever the rest of it is like
    assert sum(wait > 0 for wait in waits) == (30 + SUSPEND_FIRST + 100) - (lost + SUSPEND_FIRST)


@pytest.mark.filterwarnings("ignore::cranny.agent.pacing.PacingWarning")
def test_a_job_that_was_disturbed_keeps_its_schedule_again_soon() -> None:
    job = Job(1.0)
    job.iterate(*[0.98] * 40, *[1.3] * 10)
    assert not job.pacer.report().paced
    waits = job.iterate(*[0.98] * (SUSPEND_FIRST + 100))
    assert sum(wait > 0 for wait in waits[SUSPEND_FIRST:]) >= 95
    job.iterate(*[1.025] * 30)
    assert job.pacer.report().kept_period_s == pytest.approx(1.03)
    job.iterate(*[0.98] * (2 * WINDOW))
    assert job.pacer.report().kept_period_s == 1.0  # as those of others that it was to fit


@pytest.mark.filterwarnings("ignore::cranny.agent.pacing.PacingWarning")
def test_a_job_that_never_keeps_its_schedule_is_tried_ever_less_often() -> None:
    job = Job(1.0)
    count = 10 * SUSPEND_MOST
    waits = job.iterate(*[1.08] * count)
    trials = sum(wait > 0 for wait in waits)
    assert trials < 100
    assert sum(waits) < 0.01 * count


def test_a_beat_that_is_far_off_is_let_go_at_once() -> None:
    job = Job(255.0, 57.0)  # given in milliseconds
    with pytest.warns(PacingWarning, match="suspended for 1000 iterations: .* waits take 9.% of the time or more"):
        waits = job.iterate(*[0.25] * 100)
    assert sum(wait > 0 for wait in waits) == 2  # for the shift, and for one beat
    assert not job.pacer.report().paced


def test_a_job_that_is_much_slower_than_its_period_is_let_go_and_that_is_said() -> None:
    job = Job(1.0)
    with pytest.warns(PacingWarning, match=r"suspended .* with a period of 1 s iterations take 1\.08 s"):
        waits = job.iterate(*[1.08] * SUSPEND_FIRST)
    assert not job.pacer.report().paced
    assert sum(waits) < 4.0  # a few slots, until three iterations are known


def test_exchanges_that_other_jobs_make_longer_are_no_reason_to_give_up_slots() -> None:
    job = Job(1.0)
    job.exchange([0.45] * 3)
    job.exchange([0.8, 0.45, 0.9, 0.7, 0.45, 0.8, 0.9])  # most of them beside another job
    assert job.pacer.report().paced
    assert job.pacer.report().kept_period_s == 1.0
    with pytest.warns(PacingWarning, match="suspended for 50 iterations: .* waits take 2.% of the time or more"):
        job.exchange([0.6] * 2 * WINDOW)  # the link is slower for good


@pytest.mark.filterwarnings("ignore::cranny.agent.pacing.PacingWarning")
def test_waits_for_one_beat_do_not_count_against_the_next() -> None:
    job = Job(1.0, patience=0.0)
    job.iterate(0.9, 0.9)
    job.pacer.update(1.0, 0.5)
    job.iterate(1.0, 1.0)
    assert job.pacer.report().paced
    job.iterate(0.9, 1.0, 1.0)
    assert not job.pacer.report().paced


@pytest.mark.filterwarnings("ignore::cranny.agent.pacing.PacingWarning")
def test_an_agent_lets_go_of_a_job_that_is_much_faster_than_its_beat() -> None:
    job = Job(1.0)
    job.iterate(*[0.5] * (WINDOW + 3))
    assert not job.pacer.report().paced


def test_a_patient_agent_never_lets_go() -> None:
    job = Job(1.0, patience=1.0)
    job.iterate(*[0.1] * 200)
    assert job.pacer.report().paced
    assert job.now_s == pytest.approx(199.1)


@pytest.mark.filterwarnings("ignore::cranny.agent.pacing.PacingWarning")
@settings(max_examples=examples(30))
@given(st.floats(0.05, 3.0), st.floats(0.0, 1.0))
def test_waiting_never_takes_much_more_of_the_time_than_allowed(work: float, shift: float) -> None:
    job = Job(1.0, shift)
    waited = sum(job.iterate(*[work] * 3000))
    trials = 3 * (WINDOW + 2)  # at full cost: before the first, and after every rest
    assert waited <= max(PATIENCE * job.now_s, trials) + WINDOW


def test_a_checkpoint_now_and_then_is_no_reason_to_let_go() -> None:
    job = Job(1.0)
    job.iterate(*([1.0] * 9 + [1.6]) * 20)
    report = job.pacer.report()
    assert report.paced
    assert report.adjustments == 19


@pytest.mark.parametrize("by_s", [-3600.0, -1.5, -1.0, -0.4, 0.4, 7200.3])
def test_a_clock_that_is_set_stops_a_job_for_no_longer_than_a_beat(by_s: float) -> None:
    job = Job(1.0, now_s=10_000.0)
    job.iterate(*[1.0] * 3)
    job.set_by_s = by_s
    waits = job.iterate(*[1.0] * 3)
    assert max(waits) <= 1.0 + TOLERANCE
    assert waits[1:] == pytest.approx([0.0, 0.0])


REAL = st.floats(0.0, allow_nan=False, allow_infinity=False)


@settings(max_examples=examples(100))
@given(REAL, REAL, REAL, st.lists(st.floats(0.0, 1e10), min_size=1, max_size=20))
def test_whatever_the_beat_and_the_clock_no_iteration_fails_or_waits_for_long(
    period_s: float, shift_s: float, epoch_s: float, clock_s: list[float]
) -> None:
    try:
        schedule = PacingSchedule(period_s, shift_s, epoch_s)
    except InputError:
        assert period_s < 1e-200 or shift_s + epoch_s > 1e100
        return
    waits: list[float] = []
    times_s = iter([each for each in clock_s for _ in range(2)])
    pacer = Pacer(clock=lambda: next(times_s), timer=lambda: 0.0, sleep=waits.append, patience=1.0)
    pacer.update(schedule.period_s, schedule.shift_s, schedule.epoch_s)
    for _ in clock_s:
        pacer.step()
    assert all(wait <= (1.0 + TOLERANCE) * period_s for wait in waits)


# -- other beats -----------------------------------------------------------------------------------------------


def test_without_a_period_iterations_start_as_they_come_and_are_measured() -> None:
    job = Job()
    assert job.iterate(0.3, 0.5, 0.1, 0.0) == [0.0] * 4
    report = job.pacer.report()
    assert not report.paced
    assert report.iterations == 3
    assert report.iteration_s == pytest.approx(0.3)
    assert report.adjustments == 0


def test_another_shift_delays_the_next_iteration() -> None:
    job = Job(0.25)
    job.iterate(*[0.25] * 3)
    job.pacer.update(0.25, 0.1)
    assert job.iterate(0.25, 0.25) == pytest.approx([0.1, 0.0])
    job.pacer.update(0.3, 0.0, epoch_s=job.now_s + 0.2)
    assert job.iterate(0.3, 0.3) == pytest.approx([0.2, 0.0])
    assert job.pacer.report().adjustments == 0


def test_a_report_says_what_an_iteration_takes_and_when_it_communicates() -> None:
    job = Job(0.25)
    for number in range(5):
        job.pacer.step()
        start_s = job.now_s
        for bucket in range(3):
            job.pacer.communicated(start_s + 0.1 + 0.03 * bucket, start_s + 0.12 + 0.03 * bucket)
        job.work(0.2 if number else 0.24)
    job.pacer.step()
    report = job.pacer.report()
    assert report.comm_start_s == pytest.approx(0.1)
    assert report.comm_end_s == pytest.approx(0.18)
    assert report.work_s == pytest.approx(0.2)
    assert report.iteration_s == pytest.approx((0.24 + 4 * 0.2 + 0.01 + 3 * 0.05) / 5)
    assert report.waited_s == pytest.approx(0.01 + 4 * 0.05)
    assert json.loads(json.dumps(asdict(report)))["schedule"] == {"period_s": 0.25, "shift_s": 0.0, "epoch_s": 0.0}


def test_what_was_said_before_the_first_iteration_is_not_part_of_it() -> None:
    job = Job()
    job.pacer.communicated(0.0, 5.0)
    job.iterate(1.0, 1.0)
    assert job.pacer.report().comm_end_s is None


def test_the_environment_tells_the_beat() -> None:
    env = {"CRANNY_PERIOD_S": "0.255", "CRANNY_SHIFT_S": "0.057", "CRANNY_EPOCH_S": "1800000000"}
    assert Pacer.from_env(env).schedule == PacingSchedule(0.255, 0.057, 1_800_000_000.0)
    assert Pacer.from_env({}).schedule == PacingSchedule()


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
def test_a_beat_in_the_environment_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^CRANNY_SHIFT_S must be a number, zero or more, not '{text}'$"):
        Pacer.from_env({"CRANNY_SHIFT_S": text})


def test_beats_and_shares_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="period_s must be a number, zero or more, not -1"):
        Pacer(-1)
    with pytest.raises(InputError, match="period_s is too short to number the slots: 5e-324"):
        Pacer(5e-324)
    with pytest.raises(InputError, match="tolerance is a share of the period"):
        Pacer(1.0, tolerance=1.0)
    with pytest.raises(InputError, match="patience must be"):
        Pacer(1.0, patience=math.nan)


# -- a file that others rewrite --------------------------------------------------------------------------------


def test_a_beat_is_taken_from_a_file_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "beat.json"
    job = Job(watch=file)  # which is not there yet
    job.iterate(0.5, 0.5)
    for shift_s in (0.2, 0.7):
        PacingSchedule(1.0, shift_s).write(file)
        waits = job.iterate(*[1.0] * 4)
        assert sum(wait > 0 for wait in waits) == 1
        assert job.now_s % 1.0 == pytest.approx(shift_s)
    assert job.pacer.report().adjustments == 0
    assert list(tmp_path.iterdir()) == [file]
    assert Job(watch=file).pacer.schedule == PacingSchedule(1.0, 0.7)


def test_a_file_that_is_written_again_or_removed_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "beat.json"
    PacingSchedule(1.0, 0.2).write(file)
    job = Job(watch=file)
    job.iterate(1.0, 1.0)
    PacingSchedule(1.0, 0.2).write(file)
    assert sum(job.iterate(*[1.0] * 3)) == pytest.approx(0.0)
    file.unlink()
    assert sum(job.iterate(*[1.0] * 3)) == pytest.approx(0.0)
    assert job.pacer.report().paced


BROKEN = [
    ("{", "no schedule can be read: "),
    ("[1]", "a schedule is an object with period_s, shift_s, epoch_s"),
    ('{"period": 1}', "unknown field 'period'; did you mean 'period_s'?"),
    ('{"period_s": "1"}', "period_s must be a number, zero or more, not '1'"),
]


@pytest.mark.parametrize(("text", "wrong"), BROKEN)
def test_a_broken_file_is_refused_at_the_start_and_ends_no_training(tmp_path: Path, text: str, wrong: str) -> None:
    file = tmp_path / "beat.json"
    PacingSchedule(1.0, 0.2).write(file)
    job = Job(watch=file)
    job.iterate(1.0)
    file.write_text(text, encoding="utf-8")
    with pytest.warns(UserWarning, match="the job keeps its schedule") as caught:
        job.iterate(1.0, 1.0, 1.0)
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"{file}: {wrong}")
    assert caught[0].filename == __file__
    assert job.pacer.schedule == PacingSchedule(1.0, 0.2)
    with pytest.raises(InputError) as refused:
        Job(watch=file)
    assert str(refused.value).startswith(f"{file}: {wrong}")


def test_a_file_that_cannot_be_reached_is_refused_at_the_start_and_ends_no_training(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    job = Job(watch=folder / "beat.json")
    folder.touch()  # no folder at all
    with pytest.warns(UserWarning, match="no schedule can be read: .*; the job keeps its schedule$"):
        job.iterate(1.0)
    with pytest.raises(InputError, match="no schedule can be read: "):
        Job(watch=folder / "beat.json")
