"""What Kubernetes says about machines, queues and GPUs; the true numbers were worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

DAY = "2024-05-01T"


def pod(
    name: str,
    start: str | None,
    end: str | None,
    resources: dict[str, str],
    *,
    node: str | None = None,
    owner: str | None = None,
    phase: str | None = None,
    spec: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Write a pod that was created at 08:00."""
    metadata: dict[str, Any] = {"name": name, "namespace": "lab", "creationTimestamp": f"{DAY}08:00:00Z"}
    metadata["labels"] = labels or {}
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "PyTorchJob", "name": owner, "controller": True}]
    state = {"running": {}} if end is None else {"terminated": {"finishedAt": f"{DAY}{end}:00Z"}}
    status: dict[str, Any] = {"phase": phase or ("Running" if end is None else "Succeeded")}
    if start is not None:
        status |= {"startTime": f"{DAY}{start}:00Z", "containerStatuses": [{"state": state}]}
    container = {"name": "main", "resources": {"limits": resources}}
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **(spec or {})},
        "status": status,
    }


def node(name: str, **labels: str) -> dict[str, Any]:
    named = {f"nvidia.com/gpu.{key}": value for key, value in labels.items()}
    return {"kind": "Node", "metadata": {"name": name, "labels": named}}


def read(tmp_path: Path, *items: dict[str, Any]) -> Trace:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    return read_trace(path, count_parts=True)


def test_says_where_jobs_ran_and_on_what(tmp_path: Path) -> None:
    eight, two = {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "2"}
    trace = read(
        tmp_path,
        pod("a-0", "08:10", "09:00", eight, node="n1", owner="a"),
        pod("a-1", "08:10", "08:30", eight, node="n2", owner="a"),
        pod("a-2", "08:31", "09:00", eight, node="n3", owner="a"),  # in place of a-1
        pod("a-3", "08:10", "09:00", two, node="n1", owner="a"),
        pod("b", "08:10", None, two),
        node("n1", product="NVIDIA-A100-SXM4-80GB"),
        node("n2", product="NVIDIA-A100-SXM4-80GB"),
    )
    columns = ("job_id", "gpus", "machines", "ran_on", "gpu_type", "account", "duration_s", "end_s")
    assert trace.frame.select(columns).rows() == [
        ("lab/a", 18, 2, "n1:10 n2:8", "NVIDIA-A100-SXM4-80GB", "lab", 3000.0, 3600.0),
        ("lab/b", 2, 1, None, None, "lab", 3000.0, None),  # still runs: to the last time of the log
    ]
    assert trace.skipped == {}
    assert "5 pods and jobs make 2 jobs" in trace.notes


@pytest.mark.parametrize(
    ("resources", "labels", "gpus", "fraction", "gpu_type"),
    [
        ({"nvidia.com/mig-1g.5gb": "2"}, {}, 2, 1 / 7, None),
        ({"nvidia.com/mig-3g.20gb": "1", "nvidia.com/gpu": "1"}, {}, 2, 5 / 7, None),
        (
            {"nvidia.com/gpu": "1"},
            {"product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
            1,
            1 / 7,
            "nvidia-a100-sxm4-40gb",
        ),
        ({"nvidia.com/gpu": "1"}, {"product": "Tesla-T4-SHARED", "replicas": "4"}, 1, 1 / 4, "Tesla-T4-SHARED"),
        ({"nvidia.com/gpu.shared": "1"}, {}, 1, 1 / 2, None),
        ({"nvidia.com/gpu": "1"}, {"product": "Tesla-T4", "replicas": "1"}, 1, None, "Tesla-T4"),
    ],
)
def test_parts_of_gpus(
    tmp_path: Path,
    resources: dict[str, str],
    labels: dict[str, str],
    gpus: int,
    fraction: float | None,
    gpu_type: str | None,
) -> None:
    trace = read(tmp_path, pod("a", "08:10", "09:00", resources, node="n1"), node("n1", **labels))
    expected = (gpus, None if fraction is None else pytest.approx(fraction), gpu_type)
    assert trace.frame.select("gpus", "gpu_fraction", "gpu_type").rows() == [expected]


def test_takes_queue_and_priority(tmp_path: Path) -> None:
    spec = {"priority": 1000, "priorityClassName": "high"}
    queue = {"kueue.x-k8s.io/queue-name": "research"}
    trace = read(tmp_path, pod("a", "08:10", "09:00", {"nvidia.com/gpu": "1"}, spec=spec, labels=queue))
    assert trace.frame.select("queue", "priority", "qos").rows() == [("research", 1000.0, "high")]
    assert "partition" not in trace.frame.columns


def test_a_pod_that_was_evicted_does_not_run_on(tmp_path: Path) -> None:
    told = pod("a", "08:10", None, {"nvidia.com/gpu": "1"}, phase="Failed")
    told["status"]["conditions"] = [{"type": "Ready", "lastTransitionTime": f"{DAY}08:40:00Z"}]
    trace = read(tmp_path, told, pod("b", "08:10", None, {"nvidia.com/gpu": "1"}, phase="Failed"))
    assert trace.frame.select("job_id", "duration_s").rows() == [("lab/a", 1800.0)]
    assert trace.skipped == {"over, but the log does not say since when": 1}


@pytest.mark.parametrize("kept", ["lists", "lines", "one list"])
def test_pods_that_were_collected_in_one_file(tmp_path: Path, kept: str) -> None:
    """A pod that is in several answers of kubectl counts once, as the last says it."""
    two = {"nvidia.com/gpu": "2"}
    early = [pod("a", "08:10", None, two, node="n1"), pod("b", "08:10", "08:30", two, node="n1")]
    late = [pod("a", "08:10", "09:10", two, node="n1"), pod("c", "08:40", "09:10", two, node="n1")]
    for entry in (*early, *late):
        entry["apiVersion"] = "v1"
        entry["metadata"]["uid"] = f"{entry['metadata']['name']}-4711"
    answers = [{"apiVersion": "v1", "kind": "List", "items": items} for items in (early, late)]
    ways: dict[str, list[Any]] = {"lists": answers, "lines": [*early, *late], "one list": [[*early, *late]]}
    path = tmp_path / "pods.json"
    path.write_text("\n".join(json.dumps(each) for each in ways[kept]), encoding="utf-8")
    trace = read_trace(path)
    jobs = trace.frame.select("job_id", "duration_s").sort("job_id").rows()
    assert jobs == [("lab/a", 3600.0), ("lab/b", 1200.0), ("lab/c", 1800.0)]
    assert "entries that stand in the file again, of which the last counts: 1" in trace.notes
