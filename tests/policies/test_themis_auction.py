"""The auction of many bidders gives the same as the literal one."""

from typing import Any

import numpy as np
import pytest
from tests.reference.themis import LiteralThemis

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.topology_spec import Machine, Switch
from cranny.policies.themis import Themis

TYPES = ("a100", "h100", "v100")


def mixed_cluster() -> Cluster:
    racks = [
        Switch(
            f"rack-{rack}",
            tuple(Machine(name=f"m-{rack}-{i}", gpus=(4, 8)[rack % 2], gpu_type=TYPES[rack]) for i in range(3)),
            (100.0,) * 3,
        )
        for rack in range(3)
    ]
    return Cluster.of(Switch("root", tuple(racks), (100.0,) * 3))


def some_job(rng: np.random.Generator, number: int, now_s: float) -> Job:
    gpus = int(rng.choice([1, 2, 4, 8, 16]))
    fields: dict[str, Any] = {}
    if rng.random() < 0.3:
        fields |= {"least_gpus": max(1, gpus // 2), "most_gpus": 2 * gpus}
    if rng.random() < 0.4:
        fields["gpu_type"] = str(rng.choice(TYPES))
    if rng.random() < 0.7:
        fields["duration_s"] = float(rng.integers(1, 5000))
    return Job(id=f"job-{number}", gpus=gpus, model="vgg16", submit_s=now_s, **fields)


@pytest.mark.parametrize("seed", range(4))
def test_it_decides_as_the_literal_auction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = mixed_cluster()
    options: dict[str, Any] = {"lease_s": (50.0, 600.0)[seed % 2], "fairness": (0.0, 0.3, 0.8)[seed % 3]}
    engines = [Engine(ClusterState(cluster), made(**options)) for made in (Themis, LiteralThemis)]
    now_s, decided = 0.0, 0
    for number in range(60):
        now_s += float(rng.exponential(30.0))
        running = sorted(engines[0].state.running)
        if running and rng.random() < 0.35:
            ended = str(rng.choice(running))
            made = [engine.finish(ended, now_s) for engine in engines]
        else:
            job = some_job(rng, number, now_s)
            made = [engine.submit(job, now_s) for engine in engines]
        assert repr(made[0]) == repr(made[1])
        decided += len(made[0])
    assert decided > 30


def test_a_job_that_nothing_is_free_for_is_not_bid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full cluster no number of waiting jobs makes an auction."""
    engine = Engine(ClusterState(Cluster.fat_tree(1, 1, 4)), Themis())
    engine.submit(Job(id="first", gpus=4, model="vgg16", duration_s=1e9), 0.0)
    monkeypatch.setattr(Themis, "_rho", None)
    monkeypatch.setattr("cranny.policies.themis.BidderArrays", None)
    assert not engine.submit(Job(id="second", gpus=1, model="vgg16", submit_s=1.0), 1.0)
