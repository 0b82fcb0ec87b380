"""Warm-up: a policy loads and compiles its code on trial jobs before the first real decision."""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.service.engines import build_policy, complete_setting
from cranny.service.event_chain import EventRow
from cranny.service.job_records import JobRecords

SMALL = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)
SLOW = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4, link_gbps=1.0)
JOBS = 24  # trial jobs of each kind
SEED = 6  # of a mix that exercises all compiled code of the policies with so few
MODELS = ("vgg16", "resnet50", "bert-large")
# Whose ranks are split in one way if they are few, and in another if they are more.
SPLIT: tuple[dict[str, Any], ...] = tuple(
    {"gpus": gpus, "collective": "halving-doubling", "model": "vgg16"} for gpus in (5, 11)
)
# Jobs that say how long they run, and that may be stopped and do not say it; and those that can be resized.
KINDS: tuple[dict[str, Any], ...] = ({}, {"movable": True, "duration_s": None})
RESIZABLE = {"least_gpus": 1, "most_gpus": 8}

_log = logging.getLogger("cranny.service")
_lock = threading.Lock()
_known: dict[str, Future[None]] = {}  # warm-ups of this process, done or running, by setting and cluster size


def start_warmup(setting: Mapping[str, Any], cluster: Cluster, *, resizable: bool = False) -> "Future[None]":
    """Warm up a policy in a thread of its own, once for each setting; if so, also for jobs that can be resized.

    These need code and libraries that other jobs do not, so the start of a service without any does not load them.
    """
    chosen = complete_setting(setting)
    key = json.dumps([chosen, len(cluster.machines), resizable], sort_keys=True)
    before = start_warmup(setting, cluster) if resizable else None
    with _lock:
        if key not in _known:
            _known[key] = ready = Future[None]()

            def prepare() -> None:
                try:
                    if before is not None:
                        before.result()
                    warm(chosen, cluster, resizable=resizable)
                finally:
                    ready.set_result(None)

            threading.Thread(target=prepare, daemon=True).start()
        return _known[key]


def warm(chosen: Mapping[str, Any], cluster: Cluster, *, resizable: bool = False) -> None:
    """Let a policy decide about trial jobs, so that it runs through all its code once; resizable ones, or others.

    On this cluster: a job on one machine, one on two, one that must wait. On a small cluster jobs start and end
    until they are scattered and share links. On one with slow links, jobs that must be split. Errors are only
    logged: real jobs will show them.
    """
    largest, rng = max(machine.gpus for machine in cluster.machines), np.random.default_rng(SEED)
    sizes = (1, min(largest + 1, cluster.gpus), cluster.gpus)
    trials: list[tuple[Cluster, Sequence[dict[str, Any]]]] = [(cluster, [{"gpus": gpus} for gpus in sizes])]
    trials += [(SLOW, [job]) for job in SPLIT]
    if resizable:
        trials.clear()
    for kind in (RESIZABLE,) if resizable else KINDS:
        gpus, models = rng.integers(1, 9, JOBS).tolist(), rng.choice(MODELS, JOBS).tolist()
        jobs = [{"gpus": count, "model": model, **kind} for count, model in zip(gpus, models, strict=True)]
        trials.append((SMALL, jobs))
    for where, asked in trials:
        records, rng = JobRecords(where), np.random.default_rng(SEED)
        engine = Engine(ClusterState(where), build_policy(chosen, records))
        for number, each in enumerate(asked, start=1):
            spec = {"command": ["true"], "duration_s": 60, **each}
            records.apply(EventRow(number, 0.0, "submitted", f"job-{number}", {"user": "cranny", "spec": spec}))
            try:
                engine.submit(records.jobs[f"job-{number}"].job, 10.0 * number)
                running = list(engine.state.snapshot().running)
                if running and rng.random() < 0.6:  # one ends now and then
                    engine.finish(str(rng.choice(running)), 10.0 * number + 1)
            except Exception as error:  # noqa: BLE001 - a failed trial must not stop the service
                _log.info("warm-up of policy %s with %s: %s", chosen["name"], each, error)
