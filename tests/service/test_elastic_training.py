"""A real training under a real service: it is resized, left alone, or killed while it saves."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.conftest import Running, Start, until
from tests.service.elastic_training import FEATURES, OWN_EVERY, train_step

from cranny.model.cluster import Cluster

HERE = Path(__file__).parent
ENV = {
    "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE.parents[1]}",
    "OPENBLAS_NUM_THREADS": "1",
}
ENOUGH = 30  # steps of an attempt
CLUSTER = Cluster.single_rack(1, 4)
HAS = {"name": "has-exact"}
POLICIES = pytest.mark.parametrize("policy", [HAS["name"], "cranny"])


def elastic(folder: Path, *options: str, **spec: Any) -> dict[str, Any]:
    """Return a training that may have two to four GPUs, unless it says that it cannot save."""
    command = [sys.executable, str(HERE / "elastic_training.py"), str(folder), *options]
    size = {"gpus": 4, "duration_s": 1e6}
    if spec["checkpoint"] != "none":
        size |= {"least_gpus": 2, "most_gpus": 4, "restart_s": 1}
    profile = {"grad_bytes": 1.0, "iteration_ms": 10.0}
    return {"command": command, "env": ENV, "name": "elastic", "profile": profile, **size, **spec}


def said(folder: Path, job: str) -> list[dict[str, Any]]:
    """Return what rank 0 said, in order; a last line that is not complete is left out."""
    file = folder / f"{job}.losses"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def steps(folder: Path, job: str, attempt: int) -> list[int]:
    return [each["step"] for each in said(folder, job) if each["attempt"] == attempt and "step" in each]


def attempts(running: Running, job: str) -> int:
    with running.service.lock:
        return len(running.service.scheduler.find(job).attempts)


def cancel(running: Running, job: str) -> None:
    service = running.service
    service.call(lambda now_s: service.scheduler.cancel(job, "ann", now_s)).result(60)


def resize_twice(running: Running, folder: Path, job: str, enough: int) -> None:
    """Take two of its GPUs from a training for a while; each attempt does more than `enough` steps."""
    until(lambda: len(steps(folder, job, 1)) > enough)
    small = running.submit(command=["sleep", "600"], gpus=2, duration_s=600.0)
    until(lambda: len(steps(folder, job, 2)) > enough)
    running.until(small, "running")
    cancel(running, small)
    until(lambda: len(steps(folder, job, 3)) > enough)


def expected_losses(count: int) -> list[float]:
    weights, losses = np.zeros(FEATURES), []
    for step in range(count):
        weights, loss = train_step(weights, step)
        losses.append(loss)
    return losses


def check_course(folder: Path, job: str) -> None:
    """Check that the losses are those of a training that was never interrupted."""
    in_effect: dict[int, float] = {}
    for each in said(folder, job):
        if "step" in each:
            in_effect[each["step"]] = each["loss"]
    assert sorted(in_effect) == list(range(len(in_effect)))  # no step is missing
    losses = [in_effect[step] for step in range(len(in_effect))]
    assert losses == pytest.approx(expected_losses(len(losses)), rel=1e-9)
    assert losses[-1] < 0.5 * losses[0]


@POLICIES
def test_a_training_that_is_resized_twice_loses_no_step(policy: str, start: Start, tmp_path: Path) -> None:
    running = start(CLUSTER, real=True, policy={"name": policy})
    job = running.submit(**elastic(tmp_path, checkpoint={"grace_s": 600}))
    resize_twice(running, tmp_path, job, ENOUGH)
    course = said(tmp_path, job)
    assert [{each["ranks"] for each in course if each["attempt"] == attempt} for attempt in (1, 2, 3)] == [
        {4},
        {2},
        {4},
    ]
    saved = {each["attempt"]: each["saved"] for each in course if "saved" in each}
    first = [steps(tmp_path, job, attempt)[0] for attempt in (2, 3)]
    for attempt, went_on in zip((1, 2), first, strict=True):
        # It goes on from what it was asked to save, or from a checkpoint that it made by itself after that.
        assert went_on == saved[attempt] or (went_on > saved[attempt] and went_on % OWN_EVERY == 0)
        assert went_on <= steps(tmp_path, job, attempt)[-1] + 1
    check_course(tmp_path, job)
    service = running.service

    def resumed() -> list[int]:
        with service.lock:
            return [each.resumed.step for each in service.scheduler.find(job).attempts if each.resumed is not None]

    until(lambda: resumed() == first)
    assert service.reports.bad == 0


@POLICIES
def test_a_training_that_cannot_save_is_left_alone(policy: str, start: Start, tmp_path: Path) -> None:
    running = start(CLUSTER, real=True, policy={"name": policy})
    job = running.submit(**elastic(tmp_path, checkpoint="none"))
    until(lambda: len(steps(tmp_path, job, 1)) > ENOUGH)
    small = running.submit(command=["sleep", "600"], gpus=2, duration_s=600.0)
    done = len(steps(tmp_path, job, 1))
    until(lambda: len(steps(tmp_path, job, 1)) > done + ENOUGH)
    assert (running.status(small), attempts(running, job)) == ("waiting", 1)
    cancel(running, job)
    running.until(small, "running")
    check_course(tmp_path, job)


@POLICIES
def test_a_training_that_is_killed_while_it_saves_goes_on_from_the_checkpoint_before(
    policy: str, start: Start, tmp_path: Path
) -> None:
    running = start(CLUSTER, real=True, policy={"name": policy})
    job = running.submit(**elastic(tmp_path, "--hang", checkpoint={"grace_s": 600}))
    until(lambda: len(steps(tmp_path, job, 1)) > ENOUGH)
    running.submit(command=["sleep", "600"], gpus=2, duration_s=600.0)

    def saving() -> list[dict[str, Any]]:
        return [each for each in said(tmp_path, job) if "saving" in each]

    until(lambda: bool(saving()))
    (at,) = saving()
    os.kill(at["pid"], signal.SIGKILL)
    until(lambda: len(steps(tmp_path, job, 2)) > ENOUGH)
    before = OWN_EVERY * (at["saving"] // OWN_EVERY)
    assert steps(tmp_path, job, 2)[0] == before
    check_course(tmp_path, job)
