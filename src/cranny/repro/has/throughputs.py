"""Throughputs of models on GPU types, each with its source, and the jobs and clusters of HAS/JPS that have them.

Numbers of one source compare; numbers of two sources do not, since batch, data and precision differ. So a matrix
of jobs and types is filled from one source, or from probes (`policies._shared.heterogeneous`).

Clusters of the paper (TPDS 2024): machines of 5 GPUs, one type a machine, T4, P100 and V100 in turn, 300 Gbps
inside and 10 Gbps between machines. Jobs are those of its Table III. It measured throughputs of five models on
three types of GPU and prints four of them (Eq. 9). Of the set-up with 15 workers and four jobs it states more:
which category has the lowest mean JCT, that JCT and its fairness, the JCT of two more categories, and the
heterogeneity degree H. So throughputs are drawn until all of that comes out within some per cent. The ranges to
draw from are ours. What all fits have in common: AlexNet is about as fast on every type and outweighs the others,
or H would be larger.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from cranny.model.errors import CrannyError, unknown
from cranny.model.profile import library
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Training
from cranny.policies.has.has_jps import categories
from cranny.policies.has.market import CategoryEvaluator
from cranny.repro.has.paper import ALSO_S, CATEGORY, FAIRNESS, HETEROGENEITY, LOWEST_S, TEXT

GPUS_PER_MACHINE = 5
INSIDE_GBPS, BETWEEN_GBPS = 300.0, 10.0
GPU_TYPES = ("T4", "P100", "V100")
MODELS = TEXT.models
WORKERS, JOBS = 15, 4
CLOSE = 0.05  # share by which a JCT may be off
CLOSE_FAIRNESS, CLOSE_H = 0.03, 0.03
MOST_TRIES = 500_000


class ThroughputSource(NamedTuple):
    """Throughputs that compare with each other."""

    kind: str  # measured, or published
    source: str
    setting: str
    missing: str
    models: Mapping[str, Mapping[str, float]]  # samples/s by model and GPU type


@cache
def sources() -> Mapping[str, ThroughputSource]:
    """Return all that is known, by the name of its source."""
    text = resources.files("cranny.data").joinpath("throughputs.json").read_text(encoding="utf-8")
    found = {name: ThroughputSource(**entry) for name, entry in json.loads(text)["sources"].items()}
    found["cranny"] = ThroughputSource(
        "measured",
        "the authors of cranny, data/profiles_h200.json",
        "synthetic data, bf16 autocast, largest batch of each model",
        "all GPU types but the H200",
        {name: {each.gpu_type: each.batch / each.iteration_s} for name, each in library().items()},
    )
    return found


def source(name: str) -> ThroughputSource:
    """Return what one source knows."""
    try:
        return sources()[name]
    except KeyError:
        raise unknown("source of throughputs", name, sources()) from None


def counts(workers: int) -> list[list[int]]:
    """Return the workers of each machine and type; machines are full but for the last."""
    found = np.zeros((-(-workers // GPUS_PER_MACHINE), len(GPU_TYPES)), dtype=np.int64)
    for worker in range(workers):
        machine = worker // GPUS_PER_MACHINE
        found[machine, machine % len(GPU_TYPES)] += 1
    rows: list[list[int]] = found.tolist()
    return rows


def problem(rates: Floats, workers: Sequence[Sequence[int]]) -> Problem:
    """Return the paper's jobs, as many as there are rows of rates (jobs, types), on workers."""
    profiles, names = library(), list(MODELS)
    trainings = []
    for job in range(len(rates)):
        name = names[job % len(names)]
        trainings.append(Training(f"{name}-{job}", *MODELS[name], profiles[name].grad_bytes))
    return Problem(tuple(trainings), GPU_TYPES, workers, rates.tolist(), INSIDE_GBPS, BETWEEN_GBPS)


def fits(count: int, seed: int = 0) -> list[Floats]:
    """Return throughputs of the five models, (models, types), so many times."""
    rng = np.random.default_rng(seed)
    psi = list(categories(WORKERS, JOBS))
    found: list[Floats] = []
    for _ in range(MOST_TRIES):
        rates = _draw(rng)
        if abs(heterogeneity(rates[:JOBS], counts(WORKERS)) - HETEROGENEITY) <= CLOSE_H and _fits(rates, psi):
            found.append(rates)
            if len(found) == count:
                return found
    raise CrannyError(f"only {len(found)} of {count} draws of throughputs fit the paper")


def heterogeneity(rates: Floats, workers: list[list[int]]) -> float:
    """Return H of Eq. 35, for throughputs (jobs, types)."""
    there = np.array(workers).sum(axis=0)
    total = rates.sum(axis=0)
    return float((total * there).sum() / there.sum() / total[there > 0].min())


def _draw(rng: np.random.Generator) -> Floats:
    known = source("has-jps").models
    rows = []
    for name in MODELS:
        if name in known:
            slow, fast = known[name]["t4"], known[name]["v100"]
        else:
            least, most, low, high = TEXT.ranges[name]
            slow = float(np.exp(rng.uniform(np.log(least), np.log(most))))
            fast = slow * rng.uniform(low, high)
        rows.append((slow, rng.uniform(slow, fast), fast))
    return np.array(rows)


def _fits(rates: Floats, psi: list[tuple[int, ...]]) -> bool:
    """Say whether the default set-up comes out as the paper states."""
    scores = CategoryEvaluator(problem(rates[:JOBS], counts(WORKERS))).scores(psi, len(psi))
    jct_s, fairness = dict(zip(psi, scores[:, 0], strict=True)), dict(zip(psi, scores[:, 1], strict=True))
    stated = {CATEGORY: LOWEST_S, **ALSO_S}
    return (
        psi[int(scores[:, 0].argmin())] == CATEGORY
        and abs(fairness[CATEGORY] - FAIRNESS) <= CLOSE_FAIRNESS
        and all(abs(jct_s[sizes] / time_s - 1) <= CLOSE for sizes, time_s in stated.items())
    )
