"""Getting a policy ready: what it loads and compiles when it first decides is done before anybody waits for it."""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.service.choice import choose, settle
from cranny.service.ledger import Ledger
from cranny.service.store import Row

SHARED = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)
SHARING = ((5, 5, 5), (6, 6, 3))  # GPUs of jobs that share links there, which sets some policies thinking

_log = logging.getLogger("cranny.service")
_lock = threading.Lock()
_known: dict[str, Future[None]] = {}  # by setting and size of cluster: what this process has tried, or tries now


def preparing(setting: Mapping[str, Any], cluster: Cluster) -> "Future[None]":
    """Get a policy ready beside all else; nothing is done twice."""
    chosen = settle(setting)
    key = json.dumps([chosen, len(cluster.machines)], sort_keys=True)
    with _lock:
        if key not in _known:
            _known[key] = ready = Future[None]()
            threading.Thread(target=_prepare, args=(chosen, cluster, ready), daemon=True).start()
        return _known[key]


def _prepare(chosen: Mapping[str, Any], cluster: Cluster, ready: "Future[None]") -> None:
    try:
        warm(chosen, cluster)
    finally:
        ready.set_result(None)


def warm(chosen: Mapping[str, Any], cluster: Cluster) -> None:
    """Let a policy decide about a few jobs that nobody is told of.

    One job on one machine, one on two machines, and one that finds no room take the ways through a policy that
    most jobs do; those that share links and end take others. A policy that errs is left alone: it says so to
    whoever submits a job.
    """
    largest = max(machine.gpus for machine in cluster.machines)
    _try(chosen, cluster, ((1, min(largest + 1, cluster.gpus), cluster.gpus),))
    _try(chosen, SHARED, SHARING)


def _try(chosen: Mapping[str, Any], cluster: Cluster, waves: Sequence[Sequence[int]]) -> None:
    """Submit jobs of so many GPUs, wave after wave; those that run end with their wave."""
    ledger = Ledger(cluster)
    engine = Engine(ClusterState(cluster), choose(chosen, ledger))
    try:
        for wave in waves:
            for gpus in wave:
                number = len(ledger.jobs) + 1
                spec = {"command": ["true"], "gpus": gpus, "duration_s": 60}
                ledger.apply(Row(number, 0.0, "submitted", f"job-{number}", {"user": "cranny", "spec": spec}))
                engine.submit(ledger.jobs[f"job-{number}"].job, float(number))
            for job_id in list(engine.state.snapshot().running):
                engine.finish(job_id, float(len(ledger.jobs)))
    except Exception as error:  # noqa: BLE001 - a policy may raise anything, and serves other jobs all the same
        _log.info("policy %s, tried on jobs of %s GPUs: %s", chosen["name"], waves, error)
