"""What the series of kube-state-metrics say about one pod."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cranny.model.errors import InputError
from cranny.traces.readers.kubernetes import FINISHED, QUEUES
from cranny.traces.readers.kubernetes_gpus import Gpus, asked_gpus
from cranny.traces.readers.prometheus_series import Series

INFO = "kube_pod_info"
CREATED = "kube_pod_created"
STARTED = "kube_pod_start_time"
COMPLETED = "kube_pod_completion_time"
PHASE = "kube_pod_status_phase"
LABELS = "kube_pod_labels"
ASKED = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
NO_OWNER = "<none>"
# Resources as kube-state-metrics writes them: nvidia_com_gpu, nvidia_com_gpu_shared, nvidia_com_mig_1g_5gb.
_RESOURCE = re.compile(r"(?P<maker>.+?)_(?P<kind>gpu|gpu_shared|mig_.+)")
_KEPT = ("node", "created_by_kind", "created_by_name", "priority_class")


class PodName(NamedTuple):
    """What a pod is called; another one may have the same name later."""

    cluster: str
    namespace: str
    pod: str

    @classmethod
    def of(cls, labels: Mapping[str, str], before: str = "") -> "PodName":
        """Take the name from labels; they begin with `before` where Prometheus has labels of that name itself."""
        namespace, pod = (labels.get(before + key) or labels.get(key, "") for key in ("namespace", "pod"))
        return cls(labels.get("cluster", ""), namespace, pod)


@dataclass(slots=True, eq=False)
class PodHistory:
    """What is known of one pod.

    The labels of a series change with the machine of the pod and with the exporter that was asked, so that one pod
    may have several series of a metric: their values are never added up.
    """

    name: PodName
    times: dict[str, tuple[float, float]] = field(
        default_factory=dict
    )  # metric -> last sample: when, and the value
    asked: dict[tuple[str, str], float] = field(default_factory=dict)  # by container and resource
    labels: dict[str, str] = field(default_factory=dict)
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)  # first and last time in each
    last_s: float = -math.inf  # of its samples

    def add(self, series: Series) -> None:
        """Add what a series says."""
        labels, last = series.labels, (series.at_s[-1], series.values[-1])
        if series.name in (CREATED, STARTED, COMPLETED):
            self._refuse_another(series)
            self.times[series.name] = max(self.times.get(series.name, last), last)
        elif series.name in ASKED:
            of = labels.get("container", ""), labels.get("resource", "")
            self.asked[of] = max(self.asked.get(of, 0.0), *series.values)
        elif series.name == PHASE:
            within_s = [at_s for at_s, value in zip(series.at_s, series.values, strict=True) if value > 0]
            if not within_s:
                return  # a phase that the pod is not in
            phase = labels.get("phase", "")
            first_s, last_s = self.phases.get(phase, (math.inf, -math.inf))
            self.phases[phase] = min(first_s, within_s[0]), max(last_s, within_s[-1])
        elif series.name == LABELS:
            self.labels |= label_names(labels, QUEUES)
        if series.name in (INFO, *ASKED):
            self.labels |= {key: labels[key] for key in _KEPT if labels.get(key)}
        self.last_s = max(self.last_s, series.at_s[-1])

    def _refuse_another(self, series: Series) -> None:
        """Raise if a series is of several pods."""
        if series.name == CREATED and len(set(series.values)) > 1:
            name = "/".join(self.name[1:])
            raise InputError(
                f"pod {name}: was made anew under its name, and {CREATED} has no label uid to tell the two apart: "
                "ask for series with all their labels (kube-state-metrics 2.0 or later has it)"
            )

    @property
    def phase(self) -> str | None:
        """The phase that the pod was in at last."""
        return max(self.phases, key=lambda phase: self.phases[phase][1], default=None)

    def time_s(self, metric: str) -> float | None:
        """Return the time that a metric has as its value."""
        return self.times[metric][1] if metric in self.times else None

    def end_s(self, present_s: float) -> float | None:
        """Return when the pod ended; one that has a sample at `present_s` or later and is not over still runs."""
        completed_s = self.time_s(COMPLETED)
        if self.phase in FINISHED:
            over_s = min(first_s for phase, (first_s, _) in self.phases.items() if phase in FINISHED)
            return over_s if completed_s is None else completed_s
        if self.last_s >= present_s:
            return None
        # Without phases a time of completion is all that is known; else it is that of one of several containers.
        return completed_s if completed_s is not None and not self.phases else self.last_s

    def gpus(self, node: Mapping[str, Any]) -> Gpus:
        """Return what the pod asks for, on a node with these labels; a limit without a request stands for both."""
        limits = [{_resource(name): count} for (_, name), count in self.asked.items()]
        return asked_gpus({"containers": [{"resources": {"limits": each}} for each in limits]}, node)

    @property
    def owner(self) -> tuple[str, ...]:
        """What made the pod; the pod itself if nothing did."""
        kind, owner = (self.labels.get(key, NO_OWNER) for key in ("created_by_kind", "created_by_name"))
        return (
            (*self.name[:2], "Pod", self.name.pod) if NO_OWNER in (kind, owner) else (*self.name[:2], kind, owner)
        )


def label_names(labels: Mapping[str, str], wanted: Iterable[str]) -> dict[str, str]:
    """Return labels of Kubernetes under their own names, of which Prometheus keeps letters, digits and _ alone."""
    written = {"label_" + re.sub(r"[^A-Za-z0-9_]", "_", name): name for name in wanted}
    return {written[key]: value for key, value in labels.items() if key in written}


def _resource(name: str) -> str:
    """Return the name of a resource as Kubernetes writes it, such as nvidia.com/gpu."""
    found = _RESOURCE.fullmatch(name)
    if found is None:
        return name
    kind = found["kind"].replace("gpu_shared", "gpu.shared")
    if kind.startswith("mig_"):
        kind = "mig-" + kind.removeprefix("mig_").replace("_", ".")
    return f"{found['maker'].replace('_', '.')}/{kind}"
