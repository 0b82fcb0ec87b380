"""Getting a policy ready: what it loads and compiles when it first decides is done before anybody waits for it."""

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.service.choice import choose, settle
from cranny.service.ledger import Ledger
from cranny.service.store import Row

_log = logging.getLogger("cranny.service")
_lock = threading.Lock()
_ready: set[str] = set()  # settings that this process has tried


def warm(setting: Mapping[str, Any], cluster: Cluster) -> None:
    """Let a policy decide about a few jobs on an empty cluster like this one; nobody is told.

    One job on one machine, one on two machines, and one that finds no room take the ways through a policy that
    most jobs do. A policy that errs is left alone: it says so to whoever submits a job.
    """
    chosen = settle(setting)
    key = json.dumps([chosen, len(cluster.machines)], sort_keys=True)
    with _lock:
        if key in _ready:
            return
        ledger = Ledger(cluster)
        engine = Engine(ClusterState(cluster), choose(chosen, ledger))
        largest = max(machine.gpus for machine in cluster.machines)
        for number, gpus in enumerate((1, min(largest + 1, cluster.gpus), cluster.gpus), start=1):
            spec = {"command": ["true"], "gpus": gpus, "duration_s": 60}
            body = {"user": "cranny", "spec": spec}
            ledger.apply(Row(number, 0.0, "submitted", f"job-{number}", body))
            try:
                engine.submit(ledger.jobs[f"job-{number}"].job, float(number))
            except Exception as error:  # noqa: BLE001 - a policy may raise anything, and serves other jobs all the same
                _log.info("policy %s, tried on %d GPUs: %s", chosen["name"], gpus, error)
        _ready.add(key)
