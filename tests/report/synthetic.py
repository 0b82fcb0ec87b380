"""A small stand-in for the simulator: plausible runs of a few placement rules, to draw pages from."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.network.steady.link_load import Load
from cranny.sim.result import Result

Free = NDArray[np.int64]
Rule = Callable[[Free, int, int], list[int] | None]
MODELS = ("vgg16", "resnet50", "bert-large", "gpt2-medium", "dlrm")


@dataclass(frozen=True, slots=True, eq=False)
class FakeResult(Result):
    load_always: Load | None = None

    def load_at(self, at_s: float) -> Load | None:  # noqa: ARG002 - the same at all times
        return self.load_always


@dataclass
class Log:
    jobs: list[tuple[Any, ...]] = field(default_factory=list)
    timeline: list[tuple[Any, ...]] = field(default_factory=list)
    runs: list[tuple[Any, ...]] = field(default_factory=list)


def make_cluster(racks: int, per_rack: int, gpus: int) -> Cluster:
    def rack(index: int) -> Switch:
        numbers = range(index * per_rack, (index + 1) * per_rack)
        machines = tuple(Machine(f"node-{number:04d}", gpus, "V100") for number in numbers)
        return Switch(f"rack {index:02d}", machines, (100.0,) * per_rack)

    return Cluster.of(Switch("core", tuple(map(rack, range(racks))), (100.0 * per_rack,) * racks))


def take(free: Free, order: Any, wanted: int) -> list[int] | None:
    """Take GPUs from machines in this order; None where they do not suffice."""
    chosen: list[int] = []
    for machine in order:
        chosen += [int(machine)] * min(int(free[machine]), wanted - len(chosen))
        if len(chosen) == wanted:
            return chosen
    return None


def busy_first(free: Free, gpus: int, wanted: int) -> list[int] | None:
    busy = np.flatnonzero((free > 0) & (free < gpus))
    fits = busy[free[busy] >= wanted]
    if fits.size:
        return [int(fits[free[fits].argmin()])] * wanted
    return take(free, [*busy[np.argsort(-free[busy], kind="stable")], *np.flatnonzero(free == gpus)], wanted)


def crumbs_first(free: Free, gpus: int, wanted: int) -> list[int] | None:
    open_ = np.flatnonzero(free > 0)
    busy = open_[free[open_] < gpus]
    return take(free, [*busy[np.argsort(free[busy], kind="stable")], *np.flatnonzero(free == gpus)], wanted)


def idle_first(free: Free, _gpus: int, wanted: int) -> list[int] | None:
    open_ = np.flatnonzero(free > 0)
    return take(free, open_[np.argsort(-free[open_], kind="stable")], wanted)


def whole_first(free: Free, gpus: int, wanted: int) -> list[int] | None:
    fits = np.flatnonzero(free >= min(wanted, gpus))
    if wanted <= gpus:
        return [int(fits[free[fits].argmin()])] * wanted if fits.size else busy_first(free, gpus, wanted)
    return take(free, fits, wanted) or busy_first(free, gpus, wanted)


RULES: dict[str, Rule] = {
    "cranny": busy_first,
    "consolidate-idle": idle_first,
    "fragments-first": crumbs_first,
    "best-fit": whole_first,
}


def replay(policy: str, cluster: Cluster, trace: list[tuple[str, int, str, float, float]]) -> FakeResult:
    """Run jobs in order of arrival, each as soon as the one before it has started."""
    gpus = cluster.machines[0].gpus
    free = np.full(len(cluster.machines), gpus, dtype=np.int64)
    taken = np.zeros(len(cluster.machines), dtype=np.uint64)
    ends: list[tuple[float, int, dict[int, int], float]] = []
    log = Log()
    now = hours = profit = traffic = 0.0
    for serial, (job, wanted, model, submit_s, duration_s) in enumerate(trace):
        if wanted > free.size * gpus:
            why = f"wants {wanted} GPUs, the cluster has {free.size * gpus}"
            log.jobs.append((job, wanted, model, "", submit_s, None, None, None, None, 0, 0.0, 0, "skipped", why))
            continue
        start_s = max(now, submit_s)
        while ends and ends[0][0] <= start_s:
            traffic -= _release(heapq.heappop(ends), free, taken)
        while (chosen := RULES[policy](free, gpus, wanted)) is None:
            ended = heapq.heappop(ends)
            start_s = max(start_s, ended[0])
            traffic -= _release(ended, free, taken)
        now = start_s
        machines, counts = np.unique(chosen, return_counts=True)
        spread = len(machines) - 1
        cross_gb = 0.55 * spread * (2.1 if policy == "fragments-first" else 1.0)
        end_s = start_s + duration_s * (1 + 0.012 * spread)
        masks = {int(m): _mask(int(taken[m]), int(n), gpus) for m, n in zip(machines, counts, strict=True)}
        for machine, mask in masks.items():
            taken[machine] |= np.uint64(mask)
            free[machine] -= mask.bit_count()
            log.runs.append((job, start_s, end_s, machine, mask))
        heapq.heappush(ends, (end_s, serial, masks, cross_gb))
        traffic += cross_gb
        used = int((free < gpus).sum())
        held = int(free.size * gpus - free.sum())
        rate = 2.5 * held / used
        profit += rate
        hours += duration_s / 3600 * len(machines) / 2
        row = (job, wanted, model, f"team-{serial % 3}", submit_s, start_s, end_s, start_s - submit_s)
        log.jobs.append((*row, end_s - submit_s, len(machines), cross_gb, 0, "done", ""))
        fragmentation = 1 - held / (used * gpus)
        log.timeline.append(
            (
                submit_s,
                used,
                fragmentation,
                traffic,
                rate,
                profit,
                hours,
                held,
                len(ends),
                3 if start_s > submit_s else 0,
            )
        )
    return _result(policy, cluster, log)


def _mask(taken: int, count: int, gpus: int) -> int:
    mask = 0
    for slot in range(gpus):
        if count and not taken >> slot & 1:
            mask |= 1 << slot
            count -= 1
    return mask


def _release(ended: tuple[float, int, dict[int, int], float], free: Free, taken: NDArray[np.uint64]) -> float:
    for machine, mask in ended[2].items():
        taken[machine] &= ~np.uint64(mask)
        free[machine] += mask.bit_count()
    return ended[3]


def _result(policy: str, cluster: Cluster, log: Log) -> FakeResult:
    number, text, whole = pl.Float64, pl.String, pl.Int64
    names = "job_id gpus model tenant submit_s start_s finish_s wait_s jct_s machines cross_traffic_gb restarts"
    kinds = [text, whole, text, text, number, number, number, number, number, whole, number, whole]
    kept = dict(zip(names.split(), kinds, strict=True))
    jobs = pl.DataFrame(log.jobs, orient="row", schema={**kept, "status": text, "reason": text})
    names = "time_s used_machines fragmentation cross_traffic_gb profit_rate total_profit machine_hours held_gpus"
    columns = [*names.split(), "running_jobs", "waiting_jobs"]
    timeline = pl.DataFrame(log.timeline, orient="row", schema=dict.fromkeys(columns, pl.Float64))
    schema = {"job_id": text, "start_s": number, "end_s": number, "machine": pl.Int64, "gpus": pl.UInt64}
    runs = pl.DataFrame(log.runs, orient="row", schema=schema)
    done = jobs.filter(pl.col("status") == "done")
    jct_s, wait_s = done["jct_s"].to_numpy(), done["wait_s"].to_numpy()
    means = {name: float(timeline[name].to_numpy().mean()) for name in columns}
    summary = {
        "jobs_done": float(done.height),
        "jobs_skipped": float(jobs.height - done.height),
        "mean_used_machines": means["used_machines"],
        "time_mean_used_machines": means["used_machines"] * 0.97,
        "mean_fragmentation": means["fragmentation"],
        "mean_jct_s": float(jct_s.mean()),
        "p50_jct_s": float(np.median(jct_s)),
        "p99_jct_s": float(np.quantile(jct_s, 0.99)),
        "mean_wait_s": float(wait_s.mean()),
        "p99_wait_s": float(np.quantile(wait_s, 0.99)),
        "machine_hours": log.timeline[-1][6],
        "mean_cross_traffic_gb": means["cross_traffic_gb"],
        "mean_profit_rate": means["profit_rate"],
        "total_profit": log.timeline[-1][5],
        "cost_per_gpu_hour": 2.5 / (1 - means["fragmentation"]),
        "makespan_s": float(done["finish_s"].to_numpy().max()),
        "gpu_utilisation": means["held_gpus"] / (len(cluster.machines) * cluster.machines[0].gpus),
        "mean_comm_slowdown": 1 + 0.012 * float((done["machines"].to_numpy() - 1).mean()),
        "restarts": 0.0,
        "moves": 0.0,
    }
    racks, per_rack = len(cluster.rack_names), len(cluster.machines) // len(cluster.rack_names)
    settings = {
        "policy": policy,
        "order": "fifo",
        "network": "isolated",
        "seed": 0,
        "price_per_gpu_hour": 2.5,
        "trace": "made-up trace",
        "trace_notes": [
            "Durations of zero were raised to one second.",
            "Models were drawn with the run's seed.",
        ],
        "command": f"cranny simulate made-up.parquet --policy {policy} --network isolated --seed 0",
        "version": "0.1.0",
        "cluster": f"{racks} racks x {per_rack} machines x {cluster.machines[0].gpus} GPUs",
    }
    return FakeResult(cluster, settings, summary, jobs, timeline, runs)


def make_trace(jobs: int, capacity: int, load: float, seed: int) -> list[tuple[str, int, str, float, float]]:
    """Draw sizes, lengths and arrivals with a daily wave, at about this share of the cluster's capacity."""
    rng = np.random.default_rng(seed)
    wanted = rng.choice(
        [1, 2, 4, 8, 16, 32, 3, 6, 12], jobs, p=[0.42, 0.14, 0.14, 0.14, 0.07, 0.03, 0.02, 0.02, 0.02]
    )
    duration_s = np.clip(np.exp(rng.normal(8.4, 1.5, jobs)), 30, 4e5)
    mean_gap_s = float((wanted * duration_s).mean()) / (capacity * load)
    submit_s = np.cumsum(rng.exponential(mean_gap_s, jobs))
    submit_s += 6000 * np.sin(submit_s / 86400 * 2 * np.pi) + 6000
    submit_s = np.sort(submit_s) - submit_s.min()
    models = rng.integers(0, len(MODELS), jobs)
    return [
        (
            f"job-{index:06d}",
            int(wanted[index]),
            MODELS[models[index]],
            float(submit_s[index]),
            float(duration_s[index]),
        )
        for index in range(jobs)
    ]


def make_results(
    policies: tuple[str, ...] = ("cranny", "consolidate-idle", "fragments-first", "best-fit"),
    *,
    jobs: int = 120,
    racks: int = 3,
    per_rack: int = 4,
    gpus: int = 8,
    load: float = 0.6,
    seed: int = 0,
) -> list[FakeResult]:
    cluster = make_cluster(racks, per_rack, gpus)
    trace = make_trace(jobs, racks * per_rack * gpus, load, seed)
    trace.append(("too-large", racks * per_rack * gpus + 1, "vgg16", trace[-1][3], 60.0))
    return [replay(policy, cluster, trace) for policy in policies]
