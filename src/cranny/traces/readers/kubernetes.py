"""Reader of Kubernetes: the JSON of `kubectl get pods -A -o json`, of jobs, or of both, once or several times.

Pods of one owner (a Job, a PyTorchJob and so on) are one job, whose GPUs and machines are the most that its pods
held at once: a pod that replaces a failed one does not add to it. Where all pods had ended before the next one
started, as after an eviction, each attempt has a row: `name`, `name@2` and so on. A pod without an owner is a job
by itself. A Job whose pods are in the file too only adds when it was submitted, and its limit. What a node's
labels say about its GPUs counts if nodes are in the file (`kubectl get pods,jobs,nodes -A -o json`).
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers.json_log import load_all, mapping, number, objects, rows_trace, text
from cranny.traces.readers.kubernetes_gpus import NodeLabels, asked_gpus, gpu_type, node_labels
from cranny.traces.readers.kubernetes_pods import Pod, attempts, joined, known_s, most_at_once
from cranny.traces.readers.log_mapping import endless, life
from cranny.traces.readers.timestamps import moment_s
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


def sniff(head: bytes) -> bool:
    """Say whether a file begins like what kubectl writes as JSON."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")) and b'"apiVersion"' in head


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read a file."""
    items, repeated = _entries(path)
    owners: dict[object, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}  # their pods, and the job itself
    nodes: NodeLabels = {}
    for place, (kind, entry) in enumerate(items):
        if kind == "Pod":
            owners.setdefault(_owner(entry), ([], []))[0].append(entry)
        elif kind == "Job":
            owners.setdefault((*_name(entry), "Job"), ([], []))[1].append(entry)
        elif kind == "Node":
            nodes.update(node_labels(entry))
        else:
            owners[place] = [], []  # neither: one row, to be counted
    rows = [row for key, owner in owners.items() for row in _rows(key, *owner, nodes)]
    again = len(rows) - len(owners)
    found = sum(len(pods) + len(jobs) or 1 for pods, jobs in owners.values())
    notes = [f"{found} pods and jobs make {len(owners)} jobs"] if len(owners) != found else []
    if repeated:
        notes.append(f"entries that stand in the file again, of which the last counts: {repeated}")
    if again:
        notes.append(
            f"jobs whose pods ended and started again have a row for each attempt: {again} more than jobs"
        )
    if any(jobs and not pods for pods, jobs in owners.values()):
        notes.append(
            "a Job without its pods starts when its controller takes it up, which may be before its pods ran"
        )
    rules = (*life(running=True), endless(_FINISHED))
    return rows_trace(path, rows, CALLED, profiles, strict=strict, zone="UTC", notes=notes, rules=rules)


def _entries(path: Path) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """Return what a file lists, each with its kind, and how many of them stand there again.

    A file may hold several answers of kubectl after each other, or an entry a line: pods that are gone are in no
    later answer, so people collect them. Of a pod that is in several the last says most.
    """
    found: dict[object, tuple[str, dict[str, Any]]] = {}
    count = 0
    for document in load_all(path):
        parent = mapping(document)
        items = document if isinstance(document, list) else parent.get("items", [parent])
        if not isinstance(items, list) or not document:
            raise InputError(f"{path}: must be a list of pods or jobs, as `kubectl get pods -A -o json` writes it")
        of_list = str(parent.get("kind")).removesuffix("List")
        for item in items:
            count += 1
            entry = mapping(item)
            kind = entry.get("kind") or of_list
            uid = text(mapping(entry.get("metadata")).get("uid"))
            key = (kind, uid or _name(entry)) if uid or _name(entry)[1] else count
            found.pop(key, None)
            found[key] = str(kind), entry
    return list(found.values()), count - len(found)


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


def _rows(
    key: object, pods: list[dict[str, Any]], jobs: list[dict[str, Any]], nodes: NodeLabels
) -> list[dict[str, object]]:
    """Take our columns from an owner, a row for each attempt."""
    read = [_pod(entry, nodes) for entry in pods]
    parts = attempts(read)
    if len(parts) < 2 or not isinstance(key, tuple) or key[1] is None:
        return [_row(key, pods, jobs, nodes)]
    rows = []
    for attempt, part in enumerate(parts, start=1):
        row = {**_row(key, [pods[at] for at in part], jobs, nodes), "attempt": float(attempt)}
        if attempt > 1:  # queued again when its pods were made, at the earliest when the attempt before had ended
            row["job_id"] = f"{row['job_id']}@{attempt}"
            made_s = known_s(read[at].created_s for at in part)
            ended_s = known_s((read[at].end_s for at in parts[attempt - 2]), last=True)
            row["submit_s"] = known_s((made_s, ended_s), last=True)
        rows.append(row)
    return rows


def _row(
    key: object, pods: list[dict[str, Any]], jobs: list[dict[str, Any]], nodes: NodeLabels
) -> dict[str, object]:
    """Take our columns from the pods of an owner, or from the owner alone."""
    if not isinstance(key, tuple) or key[1] is None:
        return {}
    own = _row_of_job(jobs[-1]) if jobs else {}
    found = {**own, **(_row_of_pods(pods, nodes) if pods else {})}
    for name in ("submit_s", "limit_s", "queue"):
        if own.get(name) is not None:
            found[name] = own[name]
    if found.get("end_s") is None:  # a pod that was evicted may not say when it ended, its Job does
        found["end_s"] = own.get("end_s")
    return {"job_id": "/".join(part for part in key[:2] if part), "tenant": key[0], "account": key[0], **found}


def _row_of_pods(entries: list[dict[str, Any]], nodes: NodeLabels) -> dict[str, object]:
    """Put pods together to one job."""
    pods = [_pod(entry, nodes) for entry in entries]
    at_once = most_at_once(pods)
    phases = {_phase(entry) or "Unknown" for entry in entries}
    spec = mapping(entries[0].get("spec"))
    return {
        **joined(pods, at_once),
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
        "queue": next((text(labels[name]) for name in QUEUES if name in labels), None),
        "priority": number(spec.get("priority")),
        "qos": text(spec.get("priorityClassName")),
    }


def _pod(entry: dict[str, Any], nodes: NodeLabels) -> Pod:
    spec, status = mapping(entry.get("spec")), mapping(entry.get("status"))
    ends = [
        moment_s(mapping(mapping(container.get("state")).get("terminated")).get("finishedAt"))
        for container in objects(status.get("containerStatuses"))
    ]
    end_s = None if None in ends else known_s(ends, last=True)
    if end_s is None and _phase(entry) in FINISHED:  # evicted: only its conditions say when
        changes = (moment_s(state.get("lastTransitionTime")) for state in objects(status.get("conditions")))
        end_s = known_s(changes, last=True)
    machine = text(spec.get("nodeName"))
    created_s = moment_s(mapping(entry.get("metadata")).get("creationTimestamp"))
    gpus = asked_gpus(spec, nodes.get(machine or "", {}))
    return Pod(gpus, created_s, moment_s(status.get("startTime")), end_s, machine)


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
