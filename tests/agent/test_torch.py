"""Real training with PyTorch: two jobs of two processes each take turns on a link."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from cranny.agent.pacing import Iteration
from cranny.agent.pacing_schedule import PacingSchedule
from cranny.channel.report import Report
from tests.agent import (
    APART,
    CONNECTED_BATCH,
    CONNECTED_STEPS,
    ITERATIONS,
    PART_S,
    PARTS,
    PAUSE_S,
    PERIOD_S,
    SPEEDS,
    TOGETHER,
    TOKEN,
    WORKERS,
)

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (extra `torch`)")

TRIALS = 6  # of what is timed: other work on the machine may stop a worker for longer than an iteration takes
ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def train(folder: Path, *script: Path, **env: str) -> str:
    """Train in processes of their own, which must all end; return what they print."""
    command = [sys.executable, "-m", "tests.agent.jobs", str(folder), *map(str, script)]
    with (folder / "log").open("w+", encoding="utf-8") as log:
        jobs = subprocess.Popen(
            command, cwd=ROOT, env={**ENV, **env}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            ended = jobs.wait(timeout=120)
        finally:
            if running(jobs.pid):
                os.killpg(jobs.pid, signal.SIGKILL)
                jobs.wait()
                pytest.fail(f"processes were left behind: {(folder / 'log').read_text(encoding='utf-8')}")
        log.seek(0)
        printed = log.read()
    assert ended == 0, printed
    return printed


def running(group: int) -> bool:
    """Return whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@dataclass(frozen=True)
class Said:
    """What a worker wrote down."""

    together: list[Iteration]
    apart: list[Iteration]
    adjustments: int
    weights: float


def two_jobs(folder: Path) -> list[list[Said]]:
    """Train two jobs; return what each worker of each of them wrote down."""
    train(folder)
    found = [json.loads((folder / f"said{each}.json").read_text(encoding="utf-8")) for each in range(2 * WORKERS)]
    each = []
    for one in found:
        past = [Iteration(*iteration) for iteration in one.pop("iterations")]
        assert len(past) == 1 + TOGETHER + APART
        each.append(Said(together=past[1:-APART], apart=past[-APART:], **one))
    return [each[:WORKERS], each[WORKERS:]]


def intervals(iterations: list[Iteration]) -> list[tuple[float, float]]:
    """Return from when to when a job communicated."""
    found = []
    for each in iterations:
        assert each.communication is not None
        found.append((each.start_s + each.communication[0], each.start_s + each.communication[1]))
    return found


def overlap(job: list[Iteration], other: list[Iteration]) -> float:
    """Return the share of the time that a job communicates in which the other one does, while both train."""
    since_s = max(job[0].start_s, other[0].start_s)
    until_s = min(each[-1].start_s + each[-1].work_s for each in (job, other))
    both = whole = 0.0
    for start, end in intervals(job):
        start_s, end_s = max(start, since_s), min(end, until_s)
        whole += max(0.0, end_s - start_s)
        both += sum(
            max(0.0, min(end_s, its_end) - max(start_s, its_start)) for its_start, its_end in intervals(other)
        )
    assert whole > 5 * PARTS * PART_S
    return both / whole


def test_two_jobs_take_turns_on_a_link_and_are_faster_for_it(tmp_path: Path) -> None:
    # One test, not five: tests that share what was trained might be run by different processes.
    for trial in range(TRIALS):
        folder = tmp_path / str(trial)
        folder.mkdir()
        jobs = two_jobs(folder)
        learn_the_same(jobs)
        try:
            take_turns(jobs)
        except AssertionError:
            if trial == TRIALS - 1:
                raise
        else:
            return


def learn_the_same(jobs: list[list[Said]]) -> None:
    """Check that workers of a job agree, and that waiting does not change what is learnt."""
    for workers in jobs:
        assert workers[0].weights == pytest.approx(workers[1].weights, rel=1e-9)
    assert jobs[0][0].weights == pytest.approx(jobs[1][0].weights, rel=1e-6)


def take_turns(jobs: list[list[Said]]) -> None:
    """Check that jobs are in each other's way until they take turns, and are faster then."""
    assert overlap(jobs[0][0].together, jobs[1][0].together) > 0.6
    assert overlap(jobs[0][0].apart, jobs[1][0].apart) < 0.25
    for number, workers in enumerate(jobs):
        are_faster_apart(workers[0])
        start_on_schedule(workers, number * PERIOD_S / 2)


def are_faster_apart(worker: Said) -> None:
    """Check that iterations that take turns, waits included, are shorter than the others without waits."""
    together_s = median(each.work_s for each in worker.together)
    apart_s = median(each.waited_s + each.work_s for each in worker.apart[1:])
    assert together_s > 1.1 * apart_s  # 0.54 s against 0.42 s on an idle machine


def start_on_schedule(workers: list[Said], shift_s: float) -> None:
    """Check that workers start when they should, and so together; a busy machine may let some oversleep."""
    for worker in workers:
        assert median((each.start_s - shift_s) % PERIOD_S for each in worker.apart) < 0.05 * PERIOD_S
        assert worker.adjustments < APART / 2
    pairs = zip(workers[0].apart, workers[1].apart, strict=True)
    assert median(abs(one.start_s - other.start_s) for one, other in pairs) < 0.05 * PERIOD_S


def test_the_example_of_the_document_trains_and_ends(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "use" / "torch.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)
    assert len(examples) == 1
    script = tmp_path / "train.py"
    script.write_text(examples[0], encoding="utf-8")
    printed = train(tmp_path, script, CRANNY_PERIOD_S="0.1", CRANNY_SHIFT_S="0.05")
    reports = re.findall(
        r"^PacingReport\(iterations=20, iteration_s=([\d.]+), .*, schedule=(PacingSchedule\(.*\)), kept_.*\)$",
        printed,
        re.MULTILINE,
    )
    assert len(reports) == 1, printed  # by one worker; on a busy machine there may be warnings
    assert float(reports[0][0]) > 0.085  # what the example computes
    assert reports[0][1] == repr(PacingSchedule(period_s=0.1, shift_s=0.05))


def test_listening_changes_nothing_and_hears_all_models(tmp_path: Path) -> None:
    train(tmp_path, Path(__file__).with_name("listen.py"))
    workers = [json.loads((tmp_path / f"said{rank}.json").read_text(encoding="utf-8")) for rank in range(WORKERS)]
    for said in workers:
        for bucket_times, plain in said["pairs"]:
            assert bucket_times == pytest.approx(plain, rel=1e-6)
        assert len(said["talks"]) == ITERATIONS
        for (start_s, end_s), work_s in zip(said["talks"], said["works_s"], strict=True):
            assert 0.0 < start_s < start_s + 2 * PAUSE_S < end_s < work_s + 0.01  # measured by two clocks
    (together, apart), (same, other) = ([bucket_times for bucket_times, _ in said["pairs"]] for said in workers)
    assert together == pytest.approx(same, rel=1e-6)  # these asked each other
    assert apart != pytest.approx(other, rel=1e-3)


def test_importing_cranny_does_not_load_pytorch() -> None:
    code = (
        "import sys, cranny, cranny.agent.pacing; dir(cranny); "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_ranks_divide_a_batch_by_their_speeds_and_save_together(tmp_path: Path) -> None:
    for trial in range(TRIALS):
        folder = tmp_path / str(trial)
        folder.mkdir()
        ranks = divide_and_save(folder)
        try:
            are_as_fast_as_both(ranks)
        except AssertionError:
            if trial == TRIALS - 1:
                raise
        else:
            return


def divide_and_save(tmp_path: Path) -> list[list[dict[str, Any]]]:
    """Train with unequal shares and a checkpoint, and check all but times; return what each rank did."""
    train(tmp_path, Path(__file__).with_name("connected.py"))
    said = [json.loads((tmp_path / f"said{rank}.json").read_text(encoding="utf-8")) for rank in range(WORKERS)]
    ranks = [each["done"] for each in said]
    assert len(ranks[0]) == len(ranks[1]) == CONNECTED_STEPS
    have_each_sample_once(ranks)
    learn_as_one_process_would(ranks)
    saved = said[0]["saved"]
    assert len(saved) == 1
    assert said[1]["saved"] == saved == [said[0]["agreed"]["from_step"]]
    for rank in range(WORKERS):
        report = Report.read(tmp_path / "channel", rank, TOKEN)
        assert report is not None
        assert report.saved is not None
        assert (report.saved.step, report.saved.request) == (saved[0], 1)
        assert report.resumed is not None
        assert report.resumed.step == 0
        assert sum(each.iterations for each in report.records) == CONNECTED_STEPS
        assert sum(each.samples for each in report.records) == sum(each["own"] for each in ranks[rank])
        assert report.records[-1].gradient_bytes == 4 * 8
    return ranks


def have_each_sample_once(ranks: list[list[dict[str, list[float]]]]) -> None:
    """Check that every epoch, of five iterations, has each sample once over both ranks."""
    for begin in range(0, CONNECTED_STEPS, 5):
        seen = [each for rank in ranks for done in rank[begin : begin + 5] for each in done["samples"]]
        assert sorted(seen) == list(range(5 * CONNECTED_BATCH))


def learn_as_one_process_would(ranks: list[list[dict[str, list[float]]]]) -> None:
    """Check that gradients of both ranks are those of the whole batch."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.Linear(1, 4)
    for one, other in zip(*ranks, strict=True):
        batch = torch.tensor(one["samples"] + other["samples"])[:, None] / (5 * CONNECTED_BATCH)
        layer.zero_grad()
        layer(batch).square().mean().backward()
        assert layer.weight.grad is not None
        assert one["gradient"] == pytest.approx(layer.weight.grad.flatten().tolist(), rel=1e-4)
        assert one["gradient"] == pytest.approx(other["gradient"], rel=1e-6)


def are_as_fast_as_both(ranks: list[list[dict[str, float]]]) -> None:
    """Check that throughput is that of the slowest rank until samples are divided by speed, then that of both."""
    owns = [done["own"] for done in ranks[0]]
    equal, by_speed = CONNECTED_BATCH // 2, CONNECTED_BATCH // 3
    switch = owns.index(by_speed)
    assert 10 < switch < CONNECTED_STEPS - 10
    assert owns == [equal] * switch + [by_speed] * (CONNECTED_STEPS - switch)
    for part, divided in ((slice(2, switch), False), (slice(switch, None), True)):
        speeds = [median(done["own"] / done["alone_s"] for done in each[part]) for each in ranks]
        expected = sum(speeds) if divided else WORKERS * min(speeds)
        measured = CONNECTED_BATCH / median(done["took_s"] for done in ranks[0][part])
        assert measured == pytest.approx(expected, rel=0.05)
    assert speeds[1] == pytest.approx(SPEEDS[1] / SPEEDS[0] * speeds[0], rel=0.05)


class FakeEvent:
    """A moment on a GPU that there is none of: seconds of a clock that the test turns."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    waited_for = 0

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.waited_for += 1

    def elapsed_time(self, other: "FakeEvent") -> float:
        return 1e3 * (other.at_s - self.at_s)


def test_on_a_gpu_the_last_backward_pass_and_the_optimizer_mark_communication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    import cranny.agent.torch as agent

    now_s, marked = 0.0, []

    def event(**_: bool) -> FakeEvent:
        marked.append(FakeEvent(now_s))
        return marked[-1]

    monkeypatch.setattr(agent, "_event", event)
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    pacer = agent.TorchPacer(clock=lambda: now_s, timer=lambda: now_s)
    pacer._listen_on_gpu(layer.bias)
    counts = []
    for _ in range(2 * agent.EVERY):
        before = len(marked)
        pacer.step()
        for passed_s in (0.25, 0.5):  # two backward passes, of which the second one is followed by an exchange
            now_s += passed_s
            layer(torch.ones(1, 2)).sum().backward()
        now_s += 0.125
        optimizer.step()
        optimizer.step()  # of another model, say: only the first one ends the exchange
        now_s += 0.125
        counts.append(len(marked) - before)
    pacer.step()

    heard = [each.communication for each in pacer.past if each.communication is not None]
    assert [(each.start_s, each.end_s) for each in heard] == [(0.75, 0.875)] * len(heard)
    timed = [number < agent.FIRST or number % agent.EVERY == 0 for number in range(2 * agent.EVERY)]
    assert counts == [4 * each for each in timed]  # start, two passes, the optimizer; nothing in other iterations
    assert len(heard) == sum(timed)


class BusyGpu:
    """A GPU that there is none of: an iteration exchanges from 0.6 s to 1 s after its start, and then is over."""

    LAUNCH_S = 0.05  # that Python takes until the GPU starts an iteration

    def __init__(self) -> None:
        self.now_s, self.free_s, self.starts_s = 0.0, 0.0, list[float]()

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def launch(self) -> None:
        self.work(self.LAUNCH_S)
        self.starts_s.append(max(self.now_s, self.free_s))
        self.free_s = self.starts_s[-1] + 1.0

    def event(self, after_s: float) -> "LaterEvent":
        return LaterEvent(self, self.starts_s[-1] + after_s)


class LaterEvent(FakeEvent):
    """A moment that Python may wait for."""

    def __init__(self, gpu: BusyGpu, at_s: float) -> None:
        super().__init__(at_s)
        self.gpu = gpu

    def query(self) -> bool:
        return self.gpu.now_s >= self.at_s

    def synchronize(self) -> None:
        self.gpu.now_s = max(self.gpu.now_s, self.at_s)


@pytest.mark.parametrize(("ahead_s", "apart_s"), [(0.1, 1.01), (0.0, 1.05)])
def test_a_paced_gpu_is_not_idle_while_python_starts_its_next_iteration(
    ahead_s: float, apart_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    import cranny.agent.torch as agent

    gpu = BusyGpu()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(agent, "AHEAD_S", ahead_s)
    monkeypatch.setattr(agent, "_on_gpu", lambda: True)
    pacer = agent.TorchPacer(
        1.01, clock=lambda: gpu.now_s, timer=lambda: gpu.now_s, sleep=gpu.work, learn=False, tolerance=0.9
    )
    exchange: Any = agent._Exchange()
    pacer._exchanges.append(exchange)
    monkeypatch.setattr(agent, "_event", lambda **_: LaterEvent(gpu, max(gpu.now_s, gpu.free_s)))
    for _ in range(30):
        pacer.step()
        gpu.launch()
        exchange.begun, exchange.first_ready, exchange.over = True, gpu.event(0.6), gpu.event(1.0)
    assert gpu.starts_s[-1] - gpu.starts_s[-2] == pytest.approx(apart_s)
    assert pacer._exchanged_s[0] == pytest.approx(0.4)


@pytest.mark.parametrize("connected", [True, False])
def test_python_waits_for_a_gpu_that_is_behind_where_there_is_a_channel(
    connected: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cranny.agent.torch as agent

    marked: list[FakeEvent] = []

    def event(**_: bool) -> FakeEvent:
        marked.append(FakeEvent(0.0))
        return marked[-1]

    monkeypatch.setattr(agent, "_event", event)
    monkeypatch.setattr(agent, "_on_gpu", lambda: True)
    env = {"CRANNY_CHANNEL": str(tmp_path)} if connected else {}
    job = agent.TorchAgent(lead=agent.LEAD, pacer=agent.TorchPacer(), env=env)
    for _ in range(5):
        job.step()
    assert len(marked) == (5 if connected else 0)
    assert [each.waited_for for each in marked] == ([1, 1, 1, 0, 0] if connected else [])
