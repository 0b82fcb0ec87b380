"""Reader of what Prometheus kept of pods: metrics of kube-state-metrics, and what DCGM measured of their GPUs.

Unlike `kubectl`, Prometheus also knows pods that are gone. A pod runs from `kube_pod_start_time`. It ends at
`kube_pod_completion_time` if its last phase is Succeeded or Failed; one that was deleted while it ran ends with
its last sample. One that is in the last sample of all pods still runs, whatever else was sampled after that.

Pods of one owner that ran at the same time are one job; those that started when all before were over are its next
attempt, `NAME@2`. `gpu_utilisation` is the mean of the samples of DCGM_FI_DEV_GPU_UTIL that name its pods.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.model.validate import counted
from cranny.traces.gpu_types import without_part
from cranny.traces.readers.json_log import rows_trace
from cranny.traces.readers.kubernetes import FINISHED, QUEUES
from cranny.traces.readers.kubernetes_gpus import REPLICAS, TYPES, NodeLabels, gpu_type
from cranny.traces.readers.kubernetes_pods import Pod, attempts, joined, most_at_once
from cranny.traces.readers.log_mapping import endless, life
from cranny.traces.readers.prometheus_pods import (
    ASKED,
    COMPLETED,
    CREATED,
    INFO,
    STARTED,
    PodHistory,
    PodName,
    label_names,
)
from cranny.traces.readers.prometheus_series import Series, read_series
from cranny.traces.trace import Trace

NODE_LABELS = "kube_node_labels"
UTILISATION = "DCGM_FI_DEV_GPU_UTIL"  # percent
NEEDED = (INFO, CREATED, STARTED)
CALLED = {"job_id": "pod", "submit_s": CREATED, "start_s": STARTED, "end_s": COMPLETED, "gpus": ASKED[0]}
CLOCK_S = 0.001
GAP = 2  # times between samples, from where on some are missing
_ANSWER = rb'\{\s*"status"\s*:\s*"(success|error)"\s*,\s*"(data"\s*:\s*\{\s*"resultType|errorType)"'
_BEGIN = re.compile(rb'(\[\s*)?\{\s*"metric"\s*:\s*\{|' + _ANSWER)

Measured = dict[PodName, list[Series]]


def sniff(head: bytes) -> bool:
    """Say whether a file begins with time series as JSON."""
    return _BEGIN.match(head.lstrip(b"\xef\xbb\xbf \t\r\n")) is not None


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read a file."""
    pods: dict[tuple[PodName, str], PodHistory] = {}
    nodes: NodeLabels = {}
    measured: Measured = defaultdict(list)
    found: set[str] = set()
    times_s: set[float] = set()
    steps_s: list[float] = []
    for series in read_series(path):
        found.add(series.name)
        if series.name == UTILISATION:
            measured[PodName.of(series.labels, "exported_")].append(series)
        elif series.name == NODE_LABELS:
            nodes[series.labels.get("node", "")] = label_names(series.labels, (*TYPES, REPLICAS))
        elif series.name.startswith("kube_pod_") and "pod" in series.labels:
            name = PodName.of(series.labels)
            try:
                pods.setdefault((name, series.labels.get("uid", "")), PodHistory(name)).add(series)
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            times_s.update(series.at_s)
            steps_s += [after - before for before, after in zip(series.at_s, series.at_s[1:2], strict=False)]
    _refuse_without(path, found)
    step_s = median(steps_s) if steps_s else 0.0
    present_s = max(times_s) - max(step_s - CLOCK_S, 0.0)
    owners: dict[tuple[str, ...], list[PodHistory]] = defaultdict(list)
    for pod in pods.values():
        owners[pod.owner].append(pod)
    rows = [row for key, own in owners.items() for row in _rows(key, own, nodes, measured, present_s)]
    notes = _notes(pods.values(), len(rows), sorted(times_s), step_s, present_s)
    rules = (*life(running=True), endless(pl.col("status").is_in(FINISHED)))
    return rows_trace(path, rows, CALLED, profiles, strict=strict, zone="UTC", notes=notes, rules=rules)


def _refuse_without(path: Path, found: set[str]) -> None:
    """Raise if a metric is missing without which there are no jobs."""
    lacks = [name for name in NEEDED if name not in found] + ([] if found & set(ASKED) else [ASKED[0]])
    if lacks:
        raise InputError(
            f"{path}: has no series {', '.join(lacks)}; the page on Prometheus has the queries to run"
        )


def _notes(
    pods: Collection[PodHistory], jobs: int, times_s: Sequence[float], step_s: float, present_s: float
) -> list[str]:
    """Say how many pods make how many jobs, and whose end is not known well."""
    notes = [f"{counted(len(pods), 'pod')} make {counted(jobs, 'job')}"] if len(pods) != jobs else []
    ran = [pod for pod in pods if pod.time_s(STARTED) is not None and pod.gpus({}).asked]
    gone_s = [pod.last_s for pod in ran if pod.end_s(present_s) == pod.last_s]
    if gone_s:
        were = "was" if len(gone_s) == 1 else "were"
        notes.append(f"{counted(len(gone_s), 'pod')} {were} deleted while running: ends are those of last samples")
    next_s = [times_s[min(bisect_right(times_s, each), len(times_s) - 1)] for each in gone_s]
    unsure = sum(after - before > GAP * step_s for before, after in zip(gone_s, next_s, strict=True))
    if unsure:
        notes.append(f"for {unsure} of them samples of all pods are missing then, so that they may have run on")
    return notes


def _rows(
    key: tuple[str, ...], own: Sequence[PodHistory], nodes: NodeLabels, measured: Measured, present_s: float
) -> list[dict[str, object]]:
    """Return a row for each attempt of an owner; pods without GPUs count only if it has no others."""
    with_gpus = [pod for pod in own if pod.gpus({}).asked] or own
    pods = [(_pod(each, nodes, present_s), each) for each in with_gpus]
    cluster, namespace, _, owner = key
    rows = []
    for number, members in enumerate(attempts([pod for pod, _ in pods]), start=1):
        group = [pods[at] for at in members]
        at_once = most_at_once([pod for pod, _ in group])
        row = joined([pod for pod, _ in group], at_once)
        first = group[0][1]
        start_s = row["start_s"]
        if row["end_s"] is None and isinstance(start_s, float):  # as far as there are samples
            row["duration_s"] = max(each.last_s for _, each in group) - start_s
        named = f"{namespace}/{owner}" if namespace else owner
        machines = [pod.machine for pod in at_once]
        rows.append(
            {
                "job_id": named if number == 1 else f"{named}@{number}",
                **row,
                "attempt": float(number),
                "cluster": cluster or None,
                "tenant": namespace or None,
                "account": namespace or None,
                "gpu_type": gpu_type({}, machines, nodes) or _measured_type(group, measured),
                "gpu_utilisation": _utilisation(group, measured),
                "queue": next((first.labels[name] for name in QUEUES if name in first.labels), None),
                "qos": first.labels.get("priority_class"),
                "status": _status(each.phase for _, each in group),
            }
        )
    return rows


def _pod(history: PodHistory, nodes: NodeLabels, present_s: float) -> Pod:
    machine = history.labels.get("node")
    gpus = history.gpus(nodes.get(machine or "", {}))
    end_s = history.end_s(present_s)
    return Pod(gpus, history.time_s(CREATED), history.time_s(STARTED), end_s, machine)


def _status(phases: Iterable[str | None]) -> str:
    """Return the phase of a job: that of pods that are not over, if there are such."""
    known = sorted({phase or "Unknown" for phase in phases}, key=lambda phase: (phase in FINISHED, phase))
    return known[0]


def _samples(group: Sequence[tuple[Pod, PodHistory]], measured: Measured) -> Iterable[tuple[Series, int, int]]:
    """Yield the series that name the pods of a job, and from which sample to which they ran."""
    for pod, history in group:
        for series in measured.get(history.name, ()):
            first = bisect_left(series.at_s, pod.start_s or 0.0)
            last = bisect_right(series.at_s, math.inf if pod.end_s is None else pod.end_s)
            if first < last:
                yield series, first, last


def _utilisation(group: Sequence[tuple[Pod, PodHistory]], measured: Measured) -> float | None:
    """Return the share of time in which the GPUs of a job were busy; None if that was not measured."""
    parts = [series.values[first:last] for series, first, last in _samples(group, measured)]
    count = sum(map(len, parts))
    return sum(map(sum, parts)) / count / 100.0 if count else None


def _measured_type(group: Sequence[tuple[Pod, PodHistory]], measured: Measured) -> str | None:
    """Return the type of GPU that DCGM names, if it is one."""
    named = {series.labels.get("modelName", "") for series, _, _ in _samples(group, measured)} - {""}
    return without_part(named.pop().replace(" ", "-")) or None if len(named) == 1 else None
