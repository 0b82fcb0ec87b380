"""Reader of Kubernetes: the JSON of `kubectl get pods -A -o json`, of jobs, or of both.

Pods of one owner (a Job, a PyTorchJob and so on) are one job, whose GPUs and machines are the most that its pods
held at once: a pod that replaces a failed one does not add to it. A pod without an owner is a job by itself. A Job
whose pods are in the file too only adds when it was submitted, and its limit. What a node's labels say about its
GPUs counts if nodes are in the file (`kubectl get pods,jobs,nodes -A -o json`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers.json_log import load, mapping, number, objects, rows_trace, text
from cranny.traces.readers.kubernetes_gpus import Gpus, NodeLabels, asked_gpus, gpu_type, node_labels
from cranny.traces.readers.log_mapping import life
from cranny.traces.readers.timestamps import moment_s
from cranny.traces.schema import RowRule
from cranny.traces.trace import Trace

QUEUES = ("kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name")
FINISHED = ("Succeeded", "Failed")
CALLED = {
    "job_id": "metadata.name",
    "submit_s": "metadata.creationTimestamp",
    "start_s": "status.startTime",
    "end_s": "finishedAt",
    "gpus": "resources",
}
_FINISHED = pl.col("status").str.contains("Succeeded|Failed") & ~pl.col("status").str.contains("Running|Pending")
_ENDLESS = RowRule(
    "end_s",
    "over, but the log does not say since when",
    (pl.col("end_s").is_null() & _FINISHED).fill_null(value=False),
    of_value=False,
)


class _Pod(NamedTuple):
    """When a pod ran, and with what."""

    gpus: Gpus
    start_s: float | None
    end_s: float | None
    machine: str | None


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
    nodes: NodeLabels = {}
    for place, item in enumerate(items):
        entry = mapping(item)
        kind = entry.get("kind") or str(document.get("kind")).removesuffix("List")
        if kind == "Pod":
            owners.setdefault(_owner(entry), ([], []))[0].append(entry)
        elif kind == "Job":
            owners.setdefault((*_name(entry), "Job"), ([], []))[1].append(entry)
        elif kind == "Node":
            nodes.update(node_labels(entry))
        else:
            owners[place] = [], []  # neither: one row, to be counted
    rows = [_row(key, *owner, nodes) for key, owner in owners.items()]
    found = sum(len(pods) + len(jobs) or 1 for pods, jobs in owners.values())
    notes = [f"{found} pods and jobs make {len(rows)} jobs"] if len(rows) != found else []
    if any(jobs and not pods for pods, jobs in owners.values()):
        notes.append(
            "a Job without its pods starts when its controller takes it up, which may be before its pods ran"
        )
    rules = (*life(running=True), _ENDLESS)
    return rows_trace(path, rows, CALLED, profiles, strict=strict, zone="UTC", notes=notes, rules=rules)


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


def _row(
    key: object, pods: list[dict[str, Any]], jobs: list[dict[str, Any]], nodes: NodeLabels
) -> dict[str, object]:
    """Take our columns from the pods of an owner, or from the owner alone."""
    if not isinstance(key, tuple) or key[1] is None:
        return {}
    own = _row_of_job(jobs[-1]) if jobs else {}
    found = {**own, **(_row_of_pods(pods, nodes) if pods else {})}
    for name in ("submit_s", "limit_s", "partition"):
        if own.get(name) is not None:
            found[name] = own[name]
    if found.get("end_s") is None:  # a pod that was evicted may not say when it ended, its Job does
        found["end_s"] = own.get("end_s")
    return {"job_id": "/".join(part for part in key[:2] if part), "tenant": key[0], "account": key[0], **found}


def _row_of_pods(entries: list[dict[str, Any]], nodes: NodeLabels) -> dict[str, object]:
    """Put pods together to one job."""
    pods = [_pod(entry, nodes) for entry in entries]
    created = [moment_s(mapping(entry.get("metadata")).get("creationTimestamp")) for entry in entries]
    started = [pod for pod in pods if pod.start_s is not None]
    at_once = _most_at_once(started or pods)
    gpus, held = (sum(each) for each in zip(*(pod.gpus for pod in at_once), strict=True))
    ends = [pod.end_s for pod in started]
    phases = {_phase(entry) or "Unknown" for entry in entries}
    spec = mapping(entries[0].get("spec"))
    return {
        "submit_s": _first(created),
        "start_s": _first(pod.start_s for pod in started),
        "end_s": None if None in ends else _first(ends, last=True),
        "gpus": gpus,
        "gpu_fraction": held / gpus if 0 < held < gpus else None,
        "machines": float(len({pod.machine or (place,) for place, pod in enumerate(at_once)})),
        "ran_on": _ran_on(at_once) if started else None,
        "gpu_type": gpu_type(spec, [pod.machine for pod in at_once], nodes),
        "limit_s": number(spec.get("activeDeadlineSeconds")),
        "status": ", ".join(sorted(phases)),
        **_queue(mapping(entries[0].get("metadata")), spec),
    }


def _phase(entry: dict[str, Any]) -> str | None:
    return text(mapping(entry.get("status")).get("phase"))


def _queue(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, object]:
    """Say in which queue a job stands, and how urgent it is."""
    labels = {**mapping(metadata.get("annotations")), **mapping(metadata.get("labels"))}
    return {
        "partition": next((text(labels[name]) for name in QUEUES if name in labels), None),
        "priority": number(spec.get("priority")),
        "qos": text(spec.get("priorityClassName")),
    }


def _ran_on(pods: list[_Pod]) -> str | None:
    """Write the machines with the GPUs that pods held there; nothing if a pod does not name its own."""
    held: dict[str, float] = {}
    for pod in pods:
        if pod.machine is None or set(pod.machine) & set(" :"):
            return None
        held[pod.machine] = held.get(pod.machine, 0.0) + pod.gpus.asked
    if not all(gpus.is_integer() for gpus in held.values()):
        return None
    return " ".join(f"{machine}:{gpus:.0f}" for machine, gpus in held.items() if gpus) or None


def _pod(entry: dict[str, Any], nodes: NodeLabels) -> _Pod:
    spec, status = mapping(entry.get("spec")), mapping(entry.get("status"))
    ends = [
        moment_s(mapping(mapping(container.get("state")).get("terminated")).get("finishedAt"))
        for container in objects(status.get("containerStatuses"))
    ]
    end_s = None if None in ends else _first(ends, last=True)
    if end_s is None and _phase(entry) in FINISHED:  # evicted: only its conditions say when
        changes = (moment_s(state.get("lastTransitionTime")) for state in objects(status.get("conditions")))
        end_s = _first(changes, last=True)
    machine = text(spec.get("nodeName"))
    return _Pod(asked_gpus(spec, nodes.get(machine or "", {})), moment_s(status.get("startTime")), end_s, machine)


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
    each = asked_gpus(pod, {})
    return {
        "submit_s": moment_s(mapping(job.get("metadata")).get("creationTimestamp")),
        "start_s": moment_s(status.get("startTime")),
        "end_s": moment_s(status.get("completionTime", failed)),
        "gpus": each.asked * (math.nan if workers is None else workers),
        "gpu_fraction": each.whole / each.asked if 0 < each.whole < each.asked else None,
        "machines": workers,
        "gpu_type": gpu_type(pod, [], {}),
        "limit_s": number(spec.get("activeDeadlineSeconds")),
        "status": how,
        **_queue(mapping(job.get("metadata")), pod),
    }


def _most_at_once(pods: list[_Pod]) -> list[_Pod]:
    """Return the pods that ran when they held the most GPUs, on the most machines; one without an end runs on."""
    running: list[tuple[float, int]] = []  # ends, soonest first
    held, on = 0.0, Counter[object]()
    best, at = (-math.inf, 0), 0
    pods = sorted(pods, key=lambda pod: pod.start_s or 0.0)
    if any(math.isnan(pod.gpus.asked) for pod in pods):
        return pods
    ends_s = [math.inf if pod.end_s is None else pod.end_s for pod in pods]
    for index, pod in enumerate(pods):
        while running and running[0][0] <= (pod.start_s or 0.0):
            gone = heappop(running)[1]
            held -= pods[gone].gpus.asked
            machine = pods[gone].machine or gone
            on[machine] -= 1
            if not on[machine]:
                del on[machine]
        heappush(running, (ends_s[index], index))
        held += pod.gpus.asked
        on[pod.machine or index] += 1
        if (held, len(on)) > best:
            best, at = (held, len(on)), index
    return [
        pod
        for pod, end_s in zip(pods[: at + 1], ends_s, strict=False)
        if pod is pods[at] or end_s > (pods[at].start_s or 0.0)
    ]


def _first(times: Iterable[float | None], *, last: bool = False) -> float | None:
    """Return the earliest of the known times, or the last, if there is one; NaN if one is no time."""
    known = (time for time in times if time is not None)
    return min(known, key=lambda time: (not math.isnan(time), -time if last else time), default=None)
