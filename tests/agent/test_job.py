"""The agent of a job, by a clock that moves only when it is told to, with the files of a real folder."""

import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cranny.agent.agreement import POLL_S
from cranny.agent.job import REPORT_S, ChannelWarning, JobAgent
from cranny.agent.pacing import Pacer
from cranny.channel import files
from cranny.channel.control import AGREED, CONTROL, Agreed, CheckpointRequest, Control, Pace
from cranny.channel.report import KEPT, Report, report_file
from cranny.model.errors import InputError

STARTED_S = 1_800_000_000.0


class Training:
    """A training loop in a time of its own: one rank of a job that has a channel."""

    def __init__(self, folder: Path | None, rank: int = 0, ranks: int = 1, *, fail: bool = False, **given: object):
        self.now_s, self.saves, self.fail = STARTED_S, list[int](), fail
        env = {} if folder is None else {"CRANNY_CHANNEL": str(folder), "CRANNY_CHANNEL_TOKEN": "token"}
        given.setdefault("save", self.save)
        self.job = JobAgent(
            rank=rank,
            ranks=ranks,
            env=env,
            clock=self.clock,
            timer=self.clock,
            pacer=Pacer(clock=self.clock, timer=self.clock, sleep=self.work, patience=1.0),
            **given,  # type: ignore[arg-type]
        )

    def clock(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def save(self, step: int) -> None:
        self.saves.append(step)
        self.now_s += 3.0
        if self.fail:
            raise OSError("the disk is full")

    def iterate(self, times: int, work_s: float = 0.1) -> list[float]:
        """Do iterations; return how long each of them waited before."""
        waits = []
        for _ in range(times):
            waits.append(self.job.step())
            self.now_s += work_s
        return waits


def report_of(folder: Path, rank: int = 0) -> Report:
    report = Report.read(folder, rank, "token")
    assert report is not None
    return report


# -- what a job is asked to do ---------------------------------------------------------------------------------


def test_a_job_is_paced_from_an_agreed_step_on_until_it_is_asked_no_more(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.iterate(5)
    Control(1, pace=Pace(0.125, 0.0625, 0.0)).write(tmp_path)
    training.iterate(20)
    agreed = Agreed.read(tmp_path)
    assert agreed is not None
    assert 5 + 2 * POLL_S / 0.1 <= agreed.from_step <= 10 + 2 * POLL_S / 0.1
    waits = training.iterate(20)
    assert sum(wait > 0.0 for wait in waits) == 20
    assert training.job.report().paced
    assert (training.now_s - 0.1) % 0.125 == pytest.approx(0.0625, abs=1e-6)
    Control(2).write(tmp_path)
    training.iterate(40)
    assert training.iterate(5) == [0.0] * 5


def test_a_batch_is_divided_by_shares_from_an_agreed_step_on(tmp_path: Path) -> None:
    ranks = [Training(tmp_path, rank, 2, batch=9) for rank in range(2)]
    Control(1, shares=(0.25, 0.75), aggregate=(0, 2)).write(tmp_path)
    owns = []
    for _ in range(20):
        for training in ranks:
            training.iterate(1)
        owns.append([training.job.samples for training in ranks])
    assert owns == [[5, 4]] * 2 + [[2, 7]] * 18
    assert sum(training.job.scale(1.0) for training in ranks) == pytest.approx(2.0)  # of which DDP takes the mean
    assert [training.job.aggregate for training in ranks] == [(0, 2)] * 2


def test_all_ranks_save_in_the_same_step_and_say_so(tmp_path: Path) -> None:
    ranks = [Training(tmp_path, rank, 3) for rank in range(3)]
    for step in range(60):
        if step == 20:
            Control(1, checkpoint=CheckpointRequest(7, STARTED_S + 60.0, "resized")).write(tmp_path)
        if step == 40:  # which does not ask again
            Control(2, checkpoint=CheckpointRequest(7, STARTED_S + 60.0, "resized"), aggregate=True).write(
                tmp_path
            )
        for training in ranks:
            training.iterate(1)
    assert ranks[0].saves == ranks[1].saves == ranks[2].saves
    assert len(ranks[0].saves) == 1
    for rank in range(3):
        saved = report_of(tmp_path, rank).saved
        assert saved is not None
        assert saved[:1] + saved[2:] == (ranks[0].saves[0], 3.0, 7)
        assert report_of(tmp_path, rank).records[-1].wall_s < 6.0  # saving is no part of iterations


def test_a_script_that_saves_by_itself_answers_what_it_was_asked(tmp_path: Path) -> None:
    training = Training(tmp_path, save=None)
    training.iterate(3)
    training.job.saved(3, took_s=1.5)
    saved = report_of(tmp_path).saved
    assert saved is not None
    assert (saved.step, saved.took_s, saved.request) == (3, 1.5, 0)
    Control(1, checkpoint=CheckpointRequest(4, STARTED_S + 60.0, "stopped")).write(tmp_path)
    training.iterate(30)
    assert training.job.asked_to_save
    training.job.saved(33)
    saved = report_of(tmp_path).saved
    assert saved is not None
    assert (saved.step, saved.request) == (33, 4)
    training.iterate(30)
    assert [training.job.asked_to_save] == [False]  # once
    training.job.saved(63)  # before the service has read the answer, perhaps: it must not be lost
    saved = report_of(tmp_path).saved
    assert saved is not None
    assert (saved.step, saved.request) == (63, 4)


def test_a_checkpoint_that_fails_ends_no_training_and_is_not_reported(tmp_path: Path) -> None:
    training = Training(tmp_path, fail=True)
    Control(1, checkpoint=CheckpointRequest(1, STARTED_S + 60.0, "stopped")).write(tmp_path)
    with pytest.warns(ChannelWarning, match=r"cannot be saved: OSError\('the disk is full'\)"):
        training.iterate(10)
    assert training.saves == [2]
    assert report_of(tmp_path).saved is None


def test_a_rank_that_hears_of_a_checkpoint_too_late_does_not_save(tmp_path: Path) -> None:
    training = Training(tmp_path, 1, 2)
    training.iterate(5)
    control = Control(1, pace=Pace(0.125, 0.0, 0.0), checkpoint=CheckpointRequest(1, STARTED_S + 60.0, "stopped"))
    Agreed(3, control).write(tmp_path)
    with pytest.warns(ChannelWarning, match="rank 1 was asked too late to save with the other ranks"):
        training.iterate(2)
    assert training.saves == []
    assert training.job.report().schedule.period_s == 0.125  # the rest of it does no harm


def test_a_job_that_goes_on_says_from_where_and_counts_from_there(tmp_path: Path) -> None:
    assert Training(tmp_path).job.first_step is None
    training = Training(tmp_path, save=None)
    training.job.resumed(500)
    assert training.job.first_step == 500
    training.iterate(30)
    report = report_of(tmp_path)
    assert report.resumed is not None
    assert report.resumed.step == 500
    assert 0.0 < report.resumed.took_s < 1e5  # since this process started
    assert report.records[0].step == 500 + report.records[0].iterations
    with pytest.warns(ChannelWarning, match="after the first step"):
        training.job.resumed(3)
    assert Training(tmp_path, first_step=7).job.first_step == 7


# -- what a job says -------------------------------------------------------------------------------------------


def test_reports_come_soon_and_then_every_few_seconds_with_the_latest_records(tmp_path: Path) -> None:
    training = Training(tmp_path, batch=10, gradient_bytes=4e6)
    times: list[float] = []
    for _ in range(1600):
        training.job.step()
        start_s = training.now_s
        training.job.communicated(start_s + 0.04, start_s + 0.07)
        training.job.communicated(start_s + 0.06, start_s + 0.09)
        training.now_s += 0.125
        if report_file(tmp_path, 0).exists():
            times.append(training.now_s - 0.125 - STARTED_S)
            report_file(tmp_path, 0).rename(tmp_path / "latest")
    assert times[:7] == [0.0, 0.5, 1.5, 3.5, 7.5, 12.5, 17.5]
    assert set(np.diff(times[5:])) == {REPORT_S}
    (tmp_path / "latest").rename(report_file(tmp_path, 0))
    records = report_of(tmp_path).records
    assert len(records) == KEPT
    last = records[-1]
    assert last.iterations == 40
    assert last.step == sum(each.iterations for each in records) + records[0].step - records[0].iterations
    assert last.wall_s == pytest.approx(5.0)
    assert last.comm_s == pytest.approx(40 * 0.05)
    assert last.compute_s == pytest.approx(40 * 0.095)  # the last exchange begins at 0.06 and ends at 0.09
    assert (last.comm_start_s, last.comm_end_s) == pytest.approx((0.04, 0.09), abs=1e-6)
    assert (last.samples, last.gradient_bytes) == (400.0, 4e6)
    assert (last.waited_s, last.paced, last.period_s) == (0.0, False, 0.0)


def test_the_last_iterations_are_reported_at_the_end(tmp_path: Path) -> None:
    training = Training(tmp_path)
    with training.job as job:
        training.iterate(3)
    assert sum(each.iterations for each in report_of(tmp_path).records) == 3
    job.close()
    assert sum(each.iterations for each in report_of(tmp_path).records) == 3


def test_without_a_channel_a_job_is_only_measured(tmp_path: Path) -> None:
    training = Training(None)
    training.iterate(100)
    assert training.job.report().iterations == 99
    assert list(tmp_path.iterdir()) == []


# -- channels that do not work ---------------------------------------------------------------------------------


def broken(folder: Path) -> Iterator[str]:
    """Break a channel in many ways; yield what each of them is."""
    for name in (CONTROL, AGREED):
        for text in (
            "{",
            "[]",
            '{"version": 9}',
            '{"version": 1, "number": -1, "from_step": "x"}',
            "\0" * 100_000,
        ):
            (folder / name).write_text(text, encoding="ascii")
            yield f"{name}: {text[:30]}"
        (folder / name).unlink()
        (folder / name).mkdir()
        yield f"{name} is a folder"
        (folder / name).rmdir()
        os.mkfifo(folder / name)
        yield f"{name} is a pipe"
        (folder / name).unlink()
    Control(1, pace=Pace(5e-324, 0.0, 0.0)).write(folder)
    Agreed(0, Control(2, pace=Pace(5e-324, 0.0, 0.0))).write(folder)
    yield "a period that no slots can be numbered with"
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()
    yield "no folder"
    folder.touch()
    yield "no folder but a file"


@pytest.mark.parametrize("rank", [0, 1])
def test_no_channel_ends_a_training_and_each_is_warned_of_once(tmp_path: Path, rank: int) -> None:
    folder = tmp_path / "channel"
    folder.mkdir()
    training = Training(folder, rank, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in broken(folder):
            training.iterate(20)
    kinds = [str(each.message).partition(":")[0] for each in caught]
    assert set(kinds) >= {"the channel cannot be read", "the job keeps its schedule", "nothing can be reported"}
    assert len(kinds) == len(set(kinds))
    assert training.job.report().iterations > 200


def test_a_channel_that_works_again_is_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "channel"
    training = Training(folder)
    with pytest.warns(ChannelWarning, match="nothing can be reported"):
        training.iterate(20)
    folder.mkdir(mode=0o700)
    Control(1, checkpoint=CheckpointRequest(1, STARTED_S + 60.0, "moved")).write(folder)
    training.iterate(100)
    assert len(training.saves) == 1
    assert report_of(folder).records[-1].step > 50


def test_arguments_that_make_no_sense_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="rank must be less than"):
        JobAgent(rank=2, ranks=2)
    with pytest.raises(InputError, match="batch must be a whole number"):
        JobAgent(batch=0)
    env = {"RANK": "3", "WORLD_SIZE": "4"}
    agent = JobAgent(env=env)
    assert (agent.rank, agent.ranks) == (3, 4)
    assert JobAgent(env={"RANK": "none"}).rank == 0


# -- what it costs ---------------------------------------------------------------------------------------------


def test_reporting_takes_less_than_a_thousandth_of_iterations_of_100_ms(tmp_path: Path) -> None:
    # By CPU time, with a control that changes every 10 s: 1,000 iterations are 100 s of training and 20 reports.
    training = Training(tmp_path, batch=256, ranks=8)
    training.iterate(400)
    costs_s = []
    for number in range(3):
        began_s = time.process_time()
        for part in range(10):
            Control(10 * number + part, shares=(0.1, 0.2, *[0.7 / 6] * 6)).write(tmp_path)
            training.iterate(100)
        costs_s.append((time.process_time() - began_s) / 1000)
    began_s = time.process_time()
    for _ in range(1000):
        training.now_s += 0.1
    empty_s = (time.process_time() - began_s) / 1000
    assert min(costs_s) - empty_s < 1e-3 * 0.1
    assert json.loads(report_file(tmp_path, 0).read_text(encoding="ascii"))["version"] == files.VERSION
