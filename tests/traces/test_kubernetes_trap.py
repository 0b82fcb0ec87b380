"""A cluster of Kubernetes as it really is, through the reader and a what-if; the numbers are worked out by hand.

Two machines of eight GPUs, 08:00 to 12:00, when the last pod is created:

- `train` has 4 GPUs of n1 from 08:00 until it is evicted at 09:00; its next pod, made at 09:00, has 4 of n2 from
  09:30 to 11:30. That is two attempts, of 4 and 8 GPU-hours, which waited 0 and 1,800 s.
- `pair` has two containers, with 1 and 3 GPUs, on n1 from 08:10; one ends at 09:40, the other at 10:10: 8
  GPU-hours, 600 s.
- `again` restarts its container in place at 11:30, and has 2 GPUs of n1 from 11:00 to 12:00: 2 GPU-hours. Made at
  10:50: 600 s.
- `lost` has a GPU somewhere for 6 minutes: 0.1 GPU-hours, on no machine. 0 s.
- `last` is made and starts at 12:00, with one GPU of n2 for an hour. 0 s.
- `later` is still pending, and `web` has no GPUs.

n1 is in use from 08:00 to 10:10 and from 11:00 to 12:00, n2 from 09:30 to 11:30.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.traces.test_kubernetes import DAY, pod

from cranny.analysis.whatif.as_it_was import NO_MACHINES
from cranny.analysis.whatif.what_if import what_if
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.traces.read import read_trace


def made(at: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Set when a pod was made."""
    entry["metadata"]["creationTimestamp"] = f"{DAY}{at}:00Z"
    return entry


def gpus(count: int) -> dict[str, str]:
    return {"nvidia.com/gpu": str(count)}


def pods() -> list[dict[str, Any]]:
    evicted = pod("train-0", "08:00", None, gpus(4), node="n1", owner="train", phase="Failed")
    evicted["status"] |= {"reason": "Evicted", "containerStatuses": []}
    evicted["status"]["conditions"] = [{"type": "DisruptionTarget", "lastTransitionTime": f"{DAY}09:00:00Z"}]
    pair = pod("pair", "08:10", "09:40", gpus(1), node="n1")
    pair["spec"]["containers"].append({"name": "second", "resources": {"limits": gpus(3)}})
    ended = {"state": {"terminated": {"finishedAt": f"{DAY}10:10:00Z"}}}
    pair["status"]["containerStatuses"].append(ended)
    again = pod("again", "11:00", "12:00", gpus(2), node="n1")
    before = {"terminated": {"startedAt": f"{DAY}11:00:00Z", "finishedAt": f"{DAY}11:30:00Z"}}
    again["status"]["containerStatuses"][0] |= {"restartCount": 1, "lastState": before}
    return [
        evicted,
        made("09:00", pod("train-1", "09:30", "11:30", gpus(4), node="n2", owner="train")),
        pair,
        made("10:50", again),
        pod("lost", "08:00", "08:06", gpus(1)),
        made("12:00", pod("last", "12:00", "13:00", gpus(1), node="n2")),
        pod("later", None, None, gpus(8), phase="Pending"),
        pod("web", "08:00", None, {"cpu": "2"}, node="n2"),
    ]


def test_what_if_says_what_is_true(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods()}), encoding="utf-8")
    trace = read_trace(path)
    jobs = trace.frame.sort("job_id").select("job_id", "gpus", "ran_on", "submit_s", "start_s", "duration_s")
    hour = 3600.0
    assert jobs.rows() == [
        ("lab/again", 2, "n1:2", 10200.0, 3 * hour, hour),
        ("lab/last", 1, "n2:1", 4 * hour, 4 * hour, hour),
        ("lab/lost", 1, None, 0.0, 0.0, 360.0),
        ("lab/pair", 4, "n1:4", 0.0, 600.0, 2 * hour),
        ("lab/train", 4, "n1:4", 0.0, 0.0, hour),
        ("lab/train@2", 4, "n2:4", hour, 1.5 * hour, 2 * hour),
    ]
    assert trace.skipped == {"never started": 1, "CPU-only (gpus 0)": 1}
    own = (Machine("n1", 8), Machine("n2", 8))
    cluster = Cluster.of(Switch("rack", own, (100.0, 100.0)))
    answer = what_if(trace, cluster, ["best-fit"], search=False, processes=1)
    assert answer.window == (0.0, 4 * hour)
    waits, machines = answer.was.waits, answer.was.machines
    assert waits is not None
    assert machines is not None
    assert (waits.jobs, waits.wait.mean_s) == (6, 500.0)
    assert machines.used_hours == pytest.approx(2 + 1 / 6 + 1 + 2)
    assert machines.idle_hours == pytest.approx(8 - 31 / 6)
    assert machines.off_hours == pytest.approx(50 / 60 + 1.5 + 0.5)
    assert answer.as_it_was is not None
    (reason,) = answer.as_it_was.unplaced
    assert reason == NO_MACHINES
    assert answer.as_it_was.unplaced[reason].jobs == 1
    assert answer.as_it_was.unplaced[reason].gpu_hours == pytest.approx(0.1)
    assert answer.as_it_was.gpu_hours == pytest.approx(4 + 8 + 8 + 2 + 0.1 + 1)
