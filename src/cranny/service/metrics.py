"""Metrics of the service for Prometheus."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from cranny.core.protocol import PlacerPolicy
from cranny.model.job import Job
from cranny.service.engines import Fork
from cranny.service.explain import WAITING, WaitContext, quick_reason
from cranny.service.job_record import STATUSES
from cranny.service.serialize import tier_of
from cranny.service.service import Service

CACHE_S = 2.0  # how long the largest startable job is cached
ROUND = {  # what is measured of every round of the service loop
    "cranny_decision_seconds": "Time to decide in a round.",
    "cranny_store_seconds": "Time to store the events of a round.",
    "cranny_round_seconds": "Time of a round.",
}
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class MetricsCollector(Collector):
    """Collects the metrics of a service when Prometheus scrapes it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._largest = (-1, 0.0, 0)  # version of the state, time of computation, GPUs
        self._registry = CollectorRegistry()
        self._rounds = [Histogram(*each, buckets=SECONDS, registry=self._registry) for each in ROUND.items()]
        self._registry.register(self)
        service.on_round.append(self._observe_round)

    def page(self) -> tuple[bytes, str]:
        """Return all metrics as text, and their content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def largest(self) -> int:
        """Return the GPUs of the largest job that would start now."""
        service = self._service
        with self._lock:
            version, at_s, gpus = self._largest
            now = service.scheduler.engine.state.version
            if version != now and time.monotonic() - at_s > CACHE_S:
                gpus = largest_startable(service.fork(), service.now_s())
                self._largest = (now, time.monotonic(), gpus)
            return gpus

    def _observe_round(self, *seconds: float) -> None:
        for histogram, value_s in zip(self._rounds, seconds, strict=True):
            histogram.observe(value_s)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        service = self._service
        with service.lock:
            scheduler = service.scheduler
            engine, records = scheduler.engine, scheduler.records
            view = engine.state.snapshot(service.now_s())
            state = engine.state
            fragmentation, used, held = state.fragmentation, state.used_machines, state.held_gpus
            waiting = [records.jobs[each.job.id] for each in engine.queue]
            counts, drained, period_s = dict(records.counts), len(records.drained), engine.period_s
        first, context = waiting[0].id if waiting else None, WaitContext(view, records)
        reasons = Counter(quick_reason(record, context, first, period_s)[0] for record in waiting)
        pending = {kind: reasons[kind] for kind in WAITING}
        yield _labelled("cranny_pending_jobs", "Waiting jobs by reason.", "reason", pending)
        yield _labelled("cranny_jobs", "Jobs by status.", "status", {s: counts.get(s, 0) for s in STATUSES})
        yield GaugeMetricFamily("cranny_gpus", "GPUs of the cluster.", scheduler.cluster.gpus)
        yield GaugeMetricFamily("cranny_free_gpus", "GPUs that are free.", view.machines.gpus)
        yield GaugeMetricFamily("cranny_held_gpus", "GPUs that are held.", held)
        yield GaugeMetricFamily("cranny_used_machines", "Machines with a held GPU.", used)
        yield GaugeMetricFamily("cranny_drained_machines", "Machines that are drained.", drained)
        about = "GPUs without a rank on used machines."
        yield GaugeMetricFamily("cranny_fragmentation_ratio", about, fragmentation)
        about = "GPUs of the largest job that would start now."
        yield GaugeMetricFamily("cranny_largest_startable_job_gpus", about, self.largest())
        loads: dict[str, float] = {}  # the highest of each tier, as a share of the capacity
        for link, tier in enumerate(tier_of(view.cluster)[: view.cluster.root]):
            name = {0: "machine", 1: "rack"}.get(tier, f"tier{tier}")
            load = view.link_use_gbps(link) / view.cluster.uplink_gbps[link]
            loads[name] = max(loads.get(name, 0.0), load)
        yield _labelled("cranny_link_load_ratio", "Highest link load of a tier.", "tier", loads)
        bad, read = service.reports.bad, service.reports.read
        yield CounterMetricFamily("cranny_reports", "Reports of jobs that were read and believed.", read)
        yield CounterMetricFamily("cranny_bad_reports", "Reports of jobs that were not believed.", bad)
        about = "Jobs whose speeds, iterations or restarts were learned."
        yield GaugeMetricFamily("cranny_learned_profiles", about, len(records.profiles))
        yield CounterMetricFamily("cranny_events", "Events in the log.", service.stored)
        yield GaugeMetricFamily("cranny_ready", "Whether jobs are accepted.", float(service.ready))


def _labelled(name: str, about: str, label: str, values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def largest_startable(fork: Fork, now_s: float) -> int:
    """Return the GPUs of the largest job that the policy would start now, were the queue empty."""
    policy = fork.policy()
    view = fork.state.snapshot(now_s)
    free = view.machines.gpus
    if not isinstance(policy, PlacerPolicy) or not free:
        return free
    placer = policy.placer

    def starts(gpus: int) -> bool:
        return placer.place(Job(id="what-if", gpus=gpus), view) is not None

    if starts(free):
        return free
    low, high = 0, free
    while high - low > 1:  # a policy that can place a job can nearly always place smaller ones
        middle = (low + high) // 2
        low, high = (middle, high) if starts(middle) else (low, middle)
    return low
