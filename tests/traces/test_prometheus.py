"""What Prometheus kept of pods; the true numbers were worked out by hand."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cranny.model.errors import InputError
from cranny.traces.read import find_format, read_trace
from cranny.traces.trace import Trace

ZERO = 1_700_000_000  # when pods are created, unless they say otherwise
STEP = 60
LAST = 100  # the last sample of all is taken so many steps after zero
Entry = dict[str, Any]


def series(name: str, labels: dict[str, str], value: float | Sequence[float], first: int, last: int) -> Entry:
    """Write a series with a sample at every step from `first` to `last`."""
    values = [value] * (last - first + 1) if isinstance(value, int | float) else value
    samples = [[ZERO + (first + k) * STEP, str(each)] for k, each in enumerate(values)]
    return {"metric": {"__name__": name, "job": "kube-state-metrics", **labels}, "values": samples}


def pod(
    name: str,
    gpus: dict[str, float] | None = None,
    *,
    created: int = 0,
    started: int | None = 1,
    seen: int = LAST,
    completed: int | None = None,
    phase: str | None = "Running",
    owner: str | None = None,
    node: str = "n1",
    uid: str | None = None,
    resource: str = "nvidia_com_gpu",
) -> list[Entry]:
    """Write a pod that is sampled from step `created` to step `seen`; other times are in steps as well."""
    of = {"namespace": "lab", "pod": name, "uid": uid or f"uid-{name}"}
    kind = {"created_by_kind": "Job" if owner else "<none>", "created_by_name": owner or "<none>"}
    waits = created + 1 if started is None else max(started, created + 1)
    found = [
        series("kube_pod_created", of, ZERO + created * STEP, created, seen),
        series("kube_pod_info", {**of, **kind, "node": ""}, 1, created, waits - 1),
    ]
    if started is not None:
        found.append(
            series("kube_pod_info", {**of, **kind, "node": node, "priority_class": "high"}, 1, waits, seen)
        )
        found.append(series("kube_pod_start_time", of, ZERO + started * STEP, waits, seen))
    if completed is not None:
        found.append(series("kube_pod_completion_time", of, ZERO + completed * STEP, completed, seen))
    if phase is not None and started is not None:
        over = seen + 1 if phase == "Running" else completed or seen
        for each in ("Pending", "Running", "Succeeded", "Failed"):
            now = [
                1 if each == ("Pending" if step < waits else "Running" if step < over else phase) else 0
                for step in range(created, seen + 1)
            ]
            found.append(series("kube_pod_status_phase", {**of, "phase": each}, now, created, seen))
    asked = {"main": 1.0} if gpus is None else gpus
    for container, count in asked.items():
        labels = {**of, "container": container, "resource": resource, "unit": "integer"}
        # The label of the machine is empty at first, and makes another series.
        found.append(series("kube_pod_container_resource_requests", {**labels, "node": ""}, count, created, waits))
        found.append(series("kube_pod_container_resource_requests", {**labels, "node": node}, count, waits, seen))
    return found


def used(pod_name: str, gpu: int, percent: Sequence[float], first: int, **labels: str) -> Entry:
    """Write what DCGM measured of a GPU, as Prometheus stores it beside its own labels."""
    of = {"exported_namespace": "lab", "exported_pod": pod_name, "namespace": "monitoring", "pod": "dcgm-x"}
    named = {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "modelName": "NVIDIA A100-SXM4-80GB", **of, **labels}
    return series("DCGM_FI_DEV_GPU_UTIL", named, percent, first, first + len(percent) - 1)


def anchor() -> list[Entry]:
    """A pod that is there until the last sample of all."""
    return pod("anchor", node="n9")


def answered(entries: Sequence[Entry]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(entries)}})


def read(tmp_path: Path, *pods: Sequence[Entry], **given: Any) -> Trace:
    path = tmp_path / "pods.json"
    path.write_text(answered([entry for each in (anchor(), *pods) for entry in each]), encoding="utf-8")
    return read_trace(path, **given)


def row(trace: Trace, job_id: str) -> dict[str, Any]:
    frame = trace.frame.filter(job_id=job_id)
    assert frame.height == 1
    return frame.row(0, named=True)


def test_a_pod_that_is_gone_is_a_job(tmp_path: Path) -> None:
    trace = read(tmp_path, pod("a", {"main": 4.0}, started=2, completed=50, seen=60, phase="Succeeded"))
    found = row(trace, "lab/a")
    assert (found["submit_s"], found["start_s"], found["end_s"]) == (0.0, 120.0, 3000.0)
    assert (found["gpus"], found["ran_on"], found["duration_s"]) == (4, "n1:4", 2880.0)
    assert (found["tenant"], found["qos"], found["status"]) == ("lab", "high", "Succeeded")
    assert trace.zero_epoch_s == ZERO


def test_a_pod_that_is_there_at_last_still_runs(tmp_path: Path) -> None:
    found = row(read(tmp_path, pod("a", started=10)), "lab/a")
    assert found["end_s"] is None
    assert found["duration_s"] == 90 * STEP


def test_a_pod_without_the_last_sample_of_all_was_deleted(tmp_path: Path) -> None:
    others = pod("cpu", {}, seen=50), pod("waits", started=None, phase=None, seen=50)  # neither held a GPU
    trace = read(tmp_path, pod("a", started=10, seen=LAST - 1), *others)
    assert row(trace, "lab/a")["end_s"] == (LAST - 1) * STEP
    assert "1 pod was deleted while running: ends are those of last samples" in trace.notes


def test_samples_that_are_missing_at_the_end_end_no_pod(tmp_path: Path) -> None:
    """Kube-state-metrics was not sampled any more, but DCGM was."""
    trace = read(tmp_path, pod("a", started=10), [used("a", 0, [50.0] * 50, LAST - 20)])
    found = row(trace, "lab/a")
    assert found["end_s"] is None
    assert found["duration_s"] == 90 * STEP


def test_a_gap_in_the_samples_neither_ends_a_pod_nor_makes_two(tmp_path: Path) -> None:
    whole = pod("a", {"main": 2.0}, started=5, completed=80, seen=90, phase="Succeeded")
    for entry in whole:
        entry["values"] = [each for each in entry["values"] if not 20 <= (each[0] - ZERO) / STEP < 60]
    trace = read(tmp_path, [entry for entry in whole if entry["values"]])
    assert len(trace) == 2
    assert row(trace, "lab/a")["end_s"] == 80 * STEP


def test_a_pod_that_went_in_a_gap_is_named_as_unsure(tmp_path: Path) -> None:
    gap = range(41, 70)
    entries = [*anchor(), *pod("a", started=5, seen=40)]
    for entry in entries:
        entry["values"] = [each for each in entry["values"] if (each[0] - ZERO) / STEP not in gap]
    path = tmp_path / "pods.json"
    path.write_text(answered([entry for entry in entries if entry["values"]]), encoding="utf-8")
    trace = read_trace(path)
    assert row(trace, "lab/a")["end_s"] == 40 * STEP
    assert any("samples of all pods are missing then" in note for note in trace.notes)


def test_a_container_that_starts_again_is_the_same_pod(tmp_path: Path) -> None:
    restarts = series(
        "kube_pod_container_status_restarts_total",
        {"namespace": "lab", "pod": "a", "uid": "uid-a", "container": "main"},
        [0] * 30 + [1] * 30,
        1,
        60,
    )
    trace = read(tmp_path, [*pod("a", started=1, completed=60, seen=70, phase="Succeeded"), restarts])
    assert len(trace) == 2
    assert row(trace, "lab/a")["duration_s"] == 59 * STEP


def test_a_pod_of_the_same_name_is_another_attempt(tmp_path: Path) -> None:
    first = pod("web-0", started=1, seen=30, owner="web", uid="one")
    again = pod("web-0", created=40, started=42, completed=60, seen=70, phase="Failed", owner="web", uid="two")
    trace = read(tmp_path, first, again)
    assert (row(trace, "lab/web")["end_s"], row(trace, "lab/web")["attempt"]) == (30 * STEP, 1)
    second = row(trace, "lab/web@2")
    assert (second["submit_s"], second["start_s"], second["attempt"]) == (40 * STEP, 42 * STEP, 2)


def test_a_series_of_two_pods_is_refused_if_nothing_tells_them_apart(tmp_path: Path) -> None:
    created = series("kube_pod_created", {"namespace": "lab", "pod": "a"}, [ZERO] * 5 + [ZERO + 300] * 5, 0, 9)
    with pytest.raises(InputError, match="pod lab/a: was made anew under its name"):
        read(tmp_path, [created])


def test_pods_of_one_owner_are_one_job_and_its_containers_add_up(tmp_path: Path) -> None:
    both = {"main": 4.0, "side": 2.0}
    trace = read(
        tmp_path,
        pod("t-0", both, started=2, completed=50, seen=60, phase="Succeeded", owner="t"),
        pod("t-1", {"main": 2.0}, started=3, completed=55, seen=60, phase="Succeeded", owner="t", node="n2"),
    )
    found = row(trace, "lab/t")
    assert (found["gpus"], found["ran_on"], found["machines"]) == (8, "n1:6 n2:2", 2)
    assert (found["start_s"], found["end_s"]) == (120.0, 3300.0)


def test_one_container_that_is_over_does_not_end_the_pod(tmp_path: Path) -> None:
    trace = read(tmp_path, pod("a", {"main": 1.0, "copy": 1.0}, started=1, completed=5, seen=60))
    assert row(trace, "lab/a")["end_s"] == 60 * STEP


def test_without_phases_the_time_of_completion_is_the_end(tmp_path: Path) -> None:
    trace = read(tmp_path, pod("a", started=1, completed=30, seen=60, phase=None))
    assert row(trace, "lab/a")["end_s"] == 30 * STEP


def test_an_evicted_pod_ends_when_its_phase_changes(tmp_path: Path) -> None:
    evicted = pod("a", started=1, completed=30, seen=60, phase="Failed")
    trace = read(tmp_path, [e for e in evicted if e["metric"]["__name__"] != "kube_pod_completion_time"])
    assert row(trace, "lab/a")["end_s"] == 30 * STEP


def test_pods_without_gpus_and_pods_that_never_started_are_counted(tmp_path: Path) -> None:
    trace = read(tmp_path, pod("cpu", {}), pod("waits", started=None, phase=None))
    assert trace.skipped == {"CPU-only (gpus 0)": 1, "never started": 1}


def test_pods_without_gpus_of_a_job_with_gpus_do_not_count(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        pod("t-launcher", {}, started=1, seen=LAST, owner="t"),
        pod("t-0", started=5, completed=20, seen=30, phase="Succeeded", owner="t"),
    )
    assert (row(trace, "lab/t")["start_s"], row(trace, "lab/t")["end_s"]) == (300.0, 1200.0)


def test_two_exporters_do_not_double_anything(tmp_path: Path) -> None:
    entries = pod("a", {"main": 4.0}, completed=50, seen=60, phase="Succeeded")
    other = [{**e, "metric": {**e["metric"], "instance": "10.0.0.2:8080"}} for e in entries]
    assert row(read(tmp_path, entries, other), "lab/a")["gpus"] == 4


def test_utilisation_is_the_mean_over_the_time_and_the_gpus_of_the_job(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        pod("a", {"main": 2.0}, started=10, completed=19, seen=30, phase="Succeeded"),
        # Before its start and after its end the name may be that of another pod.
        [used("a", 0, [0.0] * 5 + [90.0] * 10 + [0.0] * 9, 5), used("a", 1, [50.0] * 4, 12)],
        pod("b", started=1, completed=20, seen=30, phase="Succeeded"),
    )
    found = row(trace, "lab/a")
    assert found["gpu_utilisation"] == pytest.approx((10 * 0.9 + 4 * 0.5) / 14)
    assert found["gpu_type"] == "NVIDIA-A100-SXM4-80GB"
    assert row(trace, "lab/b")["gpu_utilisation"] is None


def test_types_and_parts_of_gpus_come_from_resources_and_labels_of_nodes(tmp_path: Path) -> None:
    labels = {"node": "n1", "label_nvidia_com_gpu_product": "NVIDIA-H100-80GB-HBM3"}
    trace = read(
        tmp_path,
        [series("kube_node_labels", labels, 1, 0, LAST)],
        pod("whole", started=1),
        pod("part", started=1, resource="nvidia_com_mig_1g_10gb", node="n2"),
        count_parts=True,
    )
    assert row(trace, "lab/whole")["gpu_type"] == "NVIDIA-H100-80GB-HBM3"
    assert row(trace, "lab/part")["gpu_fraction"] == pytest.approx(1 / 7)


def test_queues_come_from_labels_of_pods(tmp_path: Path) -> None:
    of = {"namespace": "lab", "pod": "a", "uid": "uid-a", "label_kueue_x_k8s_io_queue_name": "night"}
    assert row(read(tmp_path, pod("a"), [series("kube_pod_labels", of, 1, 0, LAST)]), "lab/a")["queue"] == "night"


def as_promtool(entries: Sequence[Entry]) -> str:
    return json.dumps(list(entries))


def as_victoria_metrics(entries: Sequence[Entry]) -> str:
    lines = []
    for entry in entries:
        at_ms = [each[0] * 1000 for each in entry["values"]]
        values = [float(each[1]) for each in entry["values"]]
        lines.append(json.dumps({"metric": entry["metric"], "values": values, "timestamps": at_ms}))
    return "\n".join(lines) + "\n"


def as_several(entries: Sequence[Entry]) -> str:
    return "\n".join(answered([entry]) for entry in entries)


@pytest.mark.parametrize("write", [answered, as_promtool, as_victoria_metrics, as_several])
def test_all_ways_to_save_series_are_read_alike(tmp_path: Path, write: Callable[[Sequence[Entry]], str]) -> None:
    entries = [*anchor(), *pod("a", {"main": 4.0}, completed=50, seen=60, phase="Succeeded")]
    path = tmp_path / "saved"
    path.write_text(write(entries), encoding="utf-8")
    assert find_format(path) == "prometheus"
    found = row(read_trace(path), "lab/a")
    assert (found["gpus"], found["start_s"], found["end_s"], found["ran_on"]) == (4, 60.0, 3000.0, "n1:4")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"status":"error","errorType":"bad_data","error":"parse error"}',
            "document 1: the query failed: parse error",
        ),
        (
            '{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
            "must be the answer to a range query",
        ),
        (
            '[{"metric": {"__name__": "up"}, "values": [[1, "1"]]}]',
            "has no series kube_pod_info, kube_pod_created",
        ),
        ('{"status":"success","data":{"resultType":"matrix","result":[', "not JSON"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
