"""Trainings with PyTorch under a real service: unequal GPUs divide a batch, and ranks come and go."""

import json
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.service.conftest import Running, Serve, Start, until
from tests.service.test_controls import mixed
from tests.service.test_elastic_training import resize_twice, said, steps

from cranny.agent.job import JobAgent
from cranny.model.cluster import Cluster

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (extra `torch`)")

HERE = Path(__file__).parent
ENV = {
    "PYTHONPATH": str(HERE.parents[1] / "src"),
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
SLOW, FAST = 10.0, 20.0  # samples a second: so few that what a busy machine adds to an iteration counts little
PATIENCE_S = 600.0  # until the machine is calm for some iterations
BATCH = 18
EQUAL = 9  # samples of either rank
DIVIDED = {6, 12}
SETTLED = 8  # iterations that are measured
ENOUGH = 12  # steps of an attempt
UNEVEN = 16  # samples, which three ranks cannot share equally


def training(folder: Path, *options: str, **spec: Any) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "torch_training.py"), str(folder), *options]
    profile = {"grad_bytes": 1.0, "iteration_ms": 10.0}
    return {"command": command, "env": ENV, "name": "net", "profile": profile, **spec}


def test_throughput_is_that_of_both_gpus_once_samples_are_divided_by_learned_speeds(
    serve: Serve, tmp_path: Path
) -> None:
    site = serve(mixed(1, 1), real=True, policy={"name": "best-fit"})
    speeds = json.dumps({"0": SLOW, "1": FAST})
    job = site.running.submit(**training(tmp_path, "--batch", str(BATCH), "--speeds", speeds, gpus=2))

    def iterations_s(owns: set[int]) -> list[float]:
        """Return what iterations took in which rank 0 had so many samples, as did the one before."""
        pairs = pairwise(said(tmp_path, job))
        return [after["at_s"] - before["at_s"] for before, after in pairs if {before["own"], after["own"]} <= owns]

    def throughput(owns: set[int]) -> float:
        return 2 * EQUAL / median(iterations_s(owns)[-SETTLED:])

    until(lambda: len(iterations_s(DIVIDED)) >= SETTLED, PATIENCE_S)
    until(lambda: throughput(DIVIDED) > 0.95 * (SLOW + FAST), PATIENCE_S)
    with site.client("ann") as client:
        (known,) = client.get("/api/v1/profiles").json()["profiles"]
        told = client.get(f"/api/v1/jobs/{job}/measurements").json()
    assert told["profile"]["rates"] == known["rates"]
    assert known["rates"]["V100"] > 1.5 * known["rates"]["T4"]  # 2, less what a busy machine adds to either
    assert throughput(DIVIDED) < SLOW + FAST
    assert 0.8 * 2 * SLOW < throughput({EQUAL}) < 1.01 * 2 * SLOW  # rank 0 notes when it is done, not all ranks


def expected_losses(count: int) -> list[float]:
    """Return the losses of one process that has every batch as a whole."""
    import torch
    from tests.service.torch_training import RATE, SEED, SIZE, dataset, loss_of, new_model

    model, losses = new_model(), list[float]()
    samples, wanted = dataset()
    sampler = JobAgent(batch=UNEVEN, seed=SEED, rank=0, ranks=1, env={}).sampler(range(SIZE))
    while len(losses) < count:
        for batch in sampler:
            model.zero_grad()
            loss_of(model, samples[batch], wanted[batch]).backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                assert model.weight.grad is not None
                model.weight -= RATE * model.weight.grad
                losses.append(float(loss_of(model, samples, wanted)))
    return losses[:count]


def test_a_training_that_is_resized_twice_learns_as_one_process_would(start: Start, tmp_path: Path) -> None:
    running: Running = start(Cluster.single_rack(1, 3), real=True, policy={"name": "cranny"})
    elastic = {"gpus": 3, "least_gpus": 1, "most_gpus": 3, "restart_s": 1, "duration_s": 1e6}
    job = running.submit(**training(tmp_path, "--batch", str(UNEVEN), **elastic, checkpoint={"grace_s": 600}))
    resize_twice(running, tmp_path, job, ENOUGH)
    course = said(tmp_path, job)
    ranks = [{each["ranks"] for each in course if each["attempt"] == attempt} for attempt in (1, 2, 3)]
    assert ranks == [{3}, {1}, {3}]
    saved = [each["saved"] for each in course if "saved" in each]
    assert [steps(tmp_path, job, attempt)[0] for attempt in (2, 3)] == saved  # nothing before it is done again
    in_effect = {each["step"]: each["loss"] for each in course if "step" in each}
    assert list(in_effect) == list(range(len(in_effect)))  # no step is missing
    losses = list(in_effect.values())
    assert losses == pytest.approx(expected_losses(len(losses)), rel=1e-6, abs=1e-12)
    assert losses[-1] < 0.1 * losses[0]
