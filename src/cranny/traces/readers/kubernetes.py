"""Reader of Kubernetes: the JSON of `kubectl get pods -A -o json`, of jobs, or of both.

Pods of one owner (a Job, a PyTorchJob and so on) are one job, whose GPUs and machines are the most that its pods
held at once: a pod that replaces a failed one does not add to it. A pod without an owner is a job by itself. A Job
whose pods are in the file too only adds when it was submitted, and its limit.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers.json_log import load, mapping, number, objects, rows_trace, text
from cranny.traces.readers.timestamps import moment_s
from cranny.traces.trace import Trace

GPU = "/gpu"  # nvidia.com/gpu, amd.com/gpu
GPU_TYPE = "nvidia.com/gpu.product"
CALLED = {
    "job_id": "metadata.name",
    "submit_s": "metadata.creationTimestamp",
    "start_s": "status.startTime",
    "end_s": "finishedAt",
    "gpus": "resources",
}


class _Pod(NamedTuple):
    """When a pod ran, and with what."""

    gpus: float
    start_s: float | None
    end_s: float | None
    machine: str


def sniff(head: bytes) -> bool:
    """Say whether a file begins like what kubectl writes as JSON."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"apiVersion"' in head


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read a file."""
    document = mapping(load(path))
    items = document.get("items", [document])
    if not isinstance(items, list) or not document:
        raise InputError(f"{path}: must be a list of pods or jobs, as `kubectl get pods -A -o json` writes it")
    owners: dict[object, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}  # their pods, and the job itself
    for place, item in enumerate(items):
        entry = mapping(item)
        kind = entry.get("kind") or str(document.get("kind")).removesuffix("List")
        if kind == "Pod":
            owners.setdefault(_owner(entry), ([], []))[0].append(entry)
        elif kind == "Job":
            owners.setdefault((*_name(entry), "Job"), ([], []))[1].append(entry)
        else:
            owners[place] = [], []  # neither: one row, to be counted
    rows = [_row(key, *owner) for key, owner in owners.items()]
    notes = [f"{len(items)} pods and jobs make {len(rows)} jobs"] if len(rows) != len(items) else []
    if any(jobs and not pods for pods, jobs in owners.values()):
        notes.append(
            "a Job without its pods starts when its controller takes it up, which may be before its pods ran"
        )
    return rows_trace(path, rows, CALLED, profiles, strict=strict, zone="UTC", notes=notes)


def _name(entry: dict[str, Any]) -> tuple[str | None, str | None]:
    metadata = mapping(entry.get("metadata"))
    return text(metadata.get("namespace")), text(metadata.get("name"))


def _owner(pod: dict[str, Any]) -> tuple[str | None, str | None, str]:
    """Return namespace, name and kind of what a pod belongs to."""
    namespace, name = _name(pod)
    owners = objects(mapping(pod.get("metadata")).get("ownerReferences"))
    controller = next((owner for owner in owners if owner.get("controller") is True), owners[0] if owners else {})
    owned_by = text(controller.get("name"))
    return (namespace, name, "Pod") if owned_by is None else (namespace, owned_by, str(controller.get("kind")))


def _row(key: object, pods: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> dict[str, object]:
    """Take our columns from the pods of an owner, or from the owner alone."""
    if not isinstance(key, tuple) or key[1] is None:
        return {}
    own = _row_of_job(jobs[-1]) if jobs else {}
    found = {**own, **(_row_of_pods(pods) if pods else {})}
    for name in ("submit_s", "limit_s"):
        if own.get(name) is not None:
            found[name] = own[name]
    if found.get("end_s") is None:  # a pod that was evicted may not say when it ended, its Job does
        found["end_s"] = own.get("end_s")
    return {"job_id": "/".join(part for part in key[:2] if part), "tenant": key[0], **found}


def _row_of_pods(entries: list[dict[str, Any]]) -> dict[str, object]:
    """Put pods together to one job."""
    pods = [_pod(entry) for entry in entries]
    created = [moment_s(mapping(entry.get("metadata")).get("creationTimestamp")) for entry in entries]
    started = [pod for pod in pods if pod.start_s is not None]
    gpus, machines = _most_at_once(started or pods)
    ends = [pod.end_s for pod in started]
    phases = {text(mapping(entry.get("status")).get("phase")) or "Unknown" for entry in entries}
    spec = mapping(entries[0].get("spec"))
    return {
        "submit_s": _first(created),
        "start_s": _first(pod.start_s for pod in started),
        "end_s": None if None in ends else _first(ends, last=True),
        "gpus": gpus,
        "machines": machines,
        "gpu_type": text(mapping(spec.get("nodeSelector")).get(GPU_TYPE)),
        "limit_s": number(spec.get("activeDeadlineSeconds")),
        "status": ", ".join(sorted(phases)),
    }


def _pod(entry: dict[str, Any]) -> _Pod:
    spec, status = mapping(entry.get("spec")), mapping(entry.get("status"))
    ends = [
        moment_s(mapping(mapping(container.get("state")).get("terminated")).get("finishedAt"))
        for container in objects(status.get("containerStatuses"))
    ]
    end_s = None if None in ends else _first(ends, last=True)
    machine = text(spec.get("nodeName")) or f"(pod) {_name(entry)}"
    return _Pod(_gpus(spec), moment_s(status.get("startTime")), end_s, machine)


def _row_of_job(job: dict[str, Any]) -> dict[str, object]:
    spec, status = mapping(job.get("spec")), mapping(job.get("status"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    workers = number(spec.get("parallelism", 1))
    ended = {
        text(state.get("type")): state
        for state in objects(status.get("conditions"))
        if state.get("status") == "True"
    }
    how = next((name for name in ("Complete", "Failed") if name in ended), None)
    failed = ended.get("Failed", {}).get("lastTransitionTime")
    return {
        "submit_s": moment_s(mapping(job.get("metadata")).get("creationTimestamp")),
        "start_s": moment_s(status.get("startTime")),
        "end_s": moment_s(status.get("completionTime", failed)),
        "gpus": _gpus(pod) * (math.nan if workers is None else workers),
        "machines": workers,
        "gpu_type": text(mapping(pod.get("nodeSelector")).get(GPU_TYPE)),
        "limit_s": number(spec.get("activeDeadlineSeconds")),
        "status": how,
    }


def _gpus(spec: dict[str, Any]) -> float:
    """Add up the GPUs of a pod's containers; a limit without a request stands for both."""
    total = 0.0
    for container in objects(spec.get("containers")):
        resources = mapping(container.get("resources"))
        asked = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
        total += sum(number(count) or 0.0 for name, count in asked.items() if name.endswith(GPU))
    return total


def _most_at_once(pods: list[_Pod]) -> tuple[float, float]:
    """Return the most GPUs that pods held at once, and on how many machines; one without an end runs on."""
    running: list[tuple[float, int]] = []  # ends, soonest first
    held, on = 0.0, Counter[str]()
    best = (-math.inf, 0.0)
    pods = sorted(pods, key=lambda pod: pod.start_s or 0.0)
    for index, pod in enumerate(pods):
        while running and running[0][0] <= (pod.start_s or 0.0):
            gone = pods[heappop(running)[1]]
            held -= gone.gpus
            on[gone.machine] -= 1
            if not on[gone.machine]:
                del on[gone.machine]
        heappush(running, (math.inf if pod.end_s is None else pod.end_s, index))
        held += pod.gpus
        on[pod.machine] += 1
        best = max(best, (held, float(len(on))))
    return (math.nan, best[1]) if math.isnan(held) else best


def _first(times: Iterable[float | None], *, last: bool = False) -> float | None:
    """Return the earliest of the known times, or the last, if there is one; NaN if one is no time."""
    known = (time for time in times if time is not None)
    return min(known, key=lambda time: (not math.isnan(time), -time if last else time), default=None)
