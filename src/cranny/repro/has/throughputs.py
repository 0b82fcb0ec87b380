"""Throughputs of models on GPU types, each with its source, and the jobs and clusters of HAS/JPS that have them.

Numbers of one source compare; numbers of two sources do not, since batch, data and precision differ. So a matrix
of jobs and types is filled from one source, or from probes (`policies._shared.heterogeneous`).

Clusters of the paper (TPDS 2024): machines of 5 GPUs, one type a machine, T4, P100 and V100 in turn, 300 Gbps
inside and 10 Gbps between machines. Jobs are those of its Table III. It measured throughputs of five models on
three types of GPU and prints four of them (Eq. 9). Of the set-up with 15 workers and four jobs it states more:
which category has the lowest mean JCT, that JCT and its fairness, the JCT of two more categories, the
heterogeneity degree H, and that HAS has the JCT of exhaustive search, also with 30 workers (Fig. 9). So
throughputs are drawn until all of that comes out, numbers within some per cent. The ranges to draw from are ours.
What all fits have in common: AlexNet is about as fast on every type and outweighs the others, or H would be
larger.
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
from cranny.policies.has.has_exact import has_exact
from cranny.policies.has.has_jps import categories, has
from cranny.policies.has.market import CategoryEvaluator
from cranny.repro.has.paper import ALSO_S, CATEGORY, FAIRNESS, HETEROGENEITY, LOWEST_S, TEXT

GPUS_PER_MACHINE = 5
INSIDE_GBPS, BETWEEN_GBPS = 300.0, 10.0
GPU_TYPES = ("T4", "P100", "V100")
MODELS = TEXT.models
WORKERS, JOBS = 15, 4
CLOSE = 0.05  # share by which a JCT may be off
CLOSE_FAIRNESS, CLOSE_H = 0.03, 0.03
MOST_TRIES = 2_000_000
SAME = 1e-9  # relative


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


class ThroughputFits(NamedTuple):
    """Sets of throughputs, (models, types), that give the stated times, fairness and H.

    Of each, whether HAS has the mean JCT of exhaustive search with 15 and with 30 workers, which is stated as
    well.
    """

    drawn: Sequence[Floats]
    optimum: Sequence[tuple[bool, bool]]

    @property
    def rates(self) -> list[Floats]:
        """The sets that give all that is stated."""
        return [rates for rates, optimum in zip(self.drawn, self.optimum, strict=True) if all(optimum)]


@cache
def fits(count: int, seed: int = 0) -> ThroughputFits:
    """Draw throughputs until so many sets give all that the paper states of its default set-up."""
    rng = np.random.default_rng(seed)
    psi = list(categories(WORKERS, JOBS))
    drawn: list[Floats] = []
    optimum: list[tuple[bool, bool]] = []
    for _ in range(MOST_TRIES):
        rates = _draw(rng)
        if not _gives_times(rates, psi):
            continue
        drawn.append(rates)
        optimum.append((has_is_optimum(rates, WORKERS), has_is_optimum(rates, 2 * WORKERS)))
        if optimum.count((True, True)) == count:
            return ThroughputFits(drawn, optimum)
    raise CrannyError(f"only {optimum.count((True, True))} of {count} draws of throughputs fit the paper")


def has_is_optimum(rates: Floats, workers: int) -> bool:
    """Say whether HAS has the mean JCT of the optimum, with the first jobs on so many workers; Fig. 9."""
    task = problem(rates[:JOBS], counts(workers))
    return has(task).mean_jct_s <= has_exact(task).mean_jct_s * (1 + SAME)


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


def _gives_times(rates: Floats, psi: list[tuple[int, ...]]) -> bool:
    """Say whether H, the times of three categories, the best of all and its fairness are as the paper states."""
    if abs(heterogeneity(rates[:JOBS], counts(WORKERS)) - HETEROGENEITY) > CLOSE_H:
        return False
    evaluator = CategoryEvaluator(problem(rates[:JOBS], counts(WORKERS)))
    stated = {CATEGORY: LOWEST_S, **ALSO_S}
    named = evaluator.scores(stated, len(stated))
    if (np.abs(named[:, 0] / list(stated.values()) - 1) > CLOSE).any():
        return False
    scores = evaluator.scores(psi, len(psi))
    lowest = int(scores[:, 0].argmin())
    return psi[lowest] == CATEGORY and abs(scores[lowest, 1] - FAIRNESS) <= CLOSE_FAIRNESS
