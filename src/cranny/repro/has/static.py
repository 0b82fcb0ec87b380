"""Experiments without resets: one decision, and what follows from it. Each takes one fit and returns values."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from cranny.exact.heterogeneous import exhaustive
from cranny.policies._shared.heterogeneous.greedy_baselines import optimus
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Shares, Training, network_s
from cranny.policies.has.has_exact import curve, has_exact
from cranny.policies.has.has_jps import categories, has, heaviness, jps, size
from cranny.policies.has.las import las
from cranny.policies.has.market import CategoryEvaluator
from cranny.repro.has.paper import ALSO_S, ART, BELOW, FAIR, JCT, JPS, LOSS, MORE, ORDERS, PROVED, in_order
from cranny.repro.has.throughputs import counts, heterogeneity, problem, source

JOBS = 4
BETAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
Value = tuple[str, str, str, str, float]  # figure, measure, setting, scheme, and the value


class Effort(NamedTuple):
    """How much is computed."""

    rounds: int  # of everything that draws samples
    workers: tuple[int, ...]  # of large clusters


FULL, QUICK = Effort(50, (50, 100, 200, 300)), Effort(3, (50, 300))


def example() -> Iterator[Value]:
    """Return Table II; nothing is drawn."""
    known = source("has-jps").models
    rates = [[known[name]["t4"], known[name]["v100"]] for name in ("resnet18", "vgg19")]
    jobs = (Training("resnet18", 100_000, 200), Training("vgg19", 50_000, 200))
    two = Problem(jobs, ("T4", "V100"), [[2, 2]], rates)
    psi = list(categories(4, 2))
    for (first, second), jct_s in zip(psi, CategoryEvaluator(two).scores(psi, len(psi))[:, 0], strict=True):
        yield "Table II", JCT, f"{{{first}, {second}}}", "has", float(jct_s)
    yield "Table II", JCT, "LAS", "las", las(two).mean_jct_s
    yield "Table II", JCT, "optimum", "has-exact", has_exact(two).mean_jct_s
    yield "Table II", JCT, "optimum", "exhaustive", exhaustive(two).mean_jct_s


def all_categories(rates: Floats, effort: Effort) -> Iterator[Value]:  # noqa: ARG001 - same signature as the others
    """Return Figs. 4 to 6."""
    for workers in (15, 30):
        scores = scores_of(rates, workers)
        yield "Fig. 4", JCT, f"K={workers}, lowest", "has", float(scores[:, 0].min())
        yield "Fig. 4", JCT, f"K={workers}, highest", "has", float(scores[:, 0].max())
        lowest = int(scores[:, 0].argmin())
        yield "Fig. 5", FAIR, f"K={workers}, lowest JCT", "has", float(scores[lowest, 1])
        yield "Fig. 5", FAIR, f"K={workers}, least", "has", float(scores[:, 1].min())
        yield "Fig. 5", FAIR, f"K={workers}, most", "has", float(scores[:, 1].max())
        ordered = scores_of(rates, workers, prioritised=True)[:, 0]
        for name, third in zip(("first", "second", "last"), np.array_split(ordered, 3), strict=True):
            yield "Fig. 6", JCT, f"K={workers}, {name} third", "has", float(third.mean())
        if workers == 15:
            yield "Fig. 6", "place of the lowest JCT, of 364", "K=15", "has", float(ordered.argmin() + 1)
            psi = list(categories(15, JOBS))
            for sizes in ALSO_S:
                setting = f"K=15, {{{', '.join(map(str, sizes))}}}"
                yield "Fig. 4", JCT, setting, "has", float(scores[psi.index(sizes), 0])


def scores_of(rates: Floats, workers: int, *, prioritised: bool = False) -> Floats:
    """Return mean JCT and fairness of every category in the order of Psi, (categories, 2)."""
    task = problem(rates[:JOBS], counts(workers))
    if prioritised:  # Alg. 3, line 1
        order = np.argsort(heaviness(task), kind="stable")
        task = Problem(
            tuple(task.jobs[job] for job in order), task.gpu_types, task.workers,
            [task.throughput[job] for job in order], task.inside_gbps, task.between_gbps,
        )  # fmt: skip
    return CategoryEvaluator(task).scores(categories(workers, JOBS), size(workers, JOBS))


def small(rates: Floats, effort: Effort) -> Iterator[Value]:
    """Return Figs. 9 to 11 and Table IV."""
    for workers, jobs in ((15, 3), (15, 4), (30, 4), (15, 5)):
        task = problem(rates[:jobs], counts(workers))
        # What exhaustive search would take hours for, has-exact proves.
        schemes: dict[str, Callable[[], Shares]] = {
            **optimuses(task),
            **{name: _sampler(task, number) for number, name in JPS.items()},
            "has": partial(has, task),
            "has-exact": partial(has_exact, task),
        }
        if workers == 15:
            schemes["exhaustive"] = partial(exhaustive, task)
        best, means = has_exact(task), {}
        yield "Table IV", PROVED, f"K={workers}, S={jobs}", "has-exact", 100.0 * best.proved
        for name, run in schemes.items():
            repeats = effort.rounds if name in JPS.values() else 1
            runs = [timed(run) for _ in range(repeats)]
            jct_s = means[name] = float(np.mean([shares.mean_jct_s for _, shares in runs]))
            yield "Table IV", ART, f"K={workers}, S={jobs}", name, min(took_s for took_s, _ in runs)
            if workers == 15:
                yield "Fig. 11", LOSS, f"S={jobs}", name, 100 * (jct_s / best.mean_jct_s - 1)
            if jobs == JOBS:
                yield "Fig. 9", LOSS, f"K={workers}", name, 100 * (jct_s / best.mean_jct_s - 1)
                yield "Fig. 10", FAIR, f"K={workers}", name, float(np.mean([each.fairness for _, each in runs]))
        if workers == 15:
            for name in optimuses(task):
                yield "Fig. 11", BELOW, f"S={jobs}", name, 100 * (1 - means[JPS[60]] / means[name])
        if jobs == JOBS:
            draws = [jps(task, np.random.default_rng(at), 20, 0.0).mean_jct_s for at in range(effort.rounds)]
            loss = 100 * (float(np.mean(draws)) / best.mean_jct_s - 1)
            yield "Fig. 9", LOSS, f"K={workers}", "random-20", loss


def by_alpha(rates: Floats, effort: Effort) -> Iterator[Value]:
    """Return Fig. 12."""
    task = problem(rates[:JOBS], counts(15))
    best = has_exact(task).mean_jct_s
    for number, name in JPS.items():
        for alpha in np.linspace(0, 0.9, 10).tolist():
            draws = [jps(task, np.random.default_rng(at), number, alpha).mean_jct_s for at in range(effort.rounds)]
            yield "Fig. 12", JCT, f"{alpha:.1f}", name, float(np.mean(draws))
            yield "Fig. 12", LOSS, f"{alpha:.1f}", name, 100 * (float(np.mean(draws)) / best - 1)


def by_beta(rates: Floats, effort: Effort) -> Iterator[Value]:
    """Return Fig. 13, and the same trade-off of has-exact, which the paper does not have."""
    task = problem(rates[:JOBS], counts(15))
    for beta, exact in zip(BETAS, curve(task, BETAS), strict=True):
        draws = [jps(task, np.random.default_rng(at), 60, beta=beta) for at in range(effort.rounds)]
        for measure, ours, sampled in (
            (JCT, exact.mean_jct_s, [each.mean_jct_s for each in draws]),
            (FAIR, exact.fairness, [each.fairness for each in draws]),
        ):
            yield "Fig. 13", measure, f"{beta:g}", JPS[60], float(np.mean(sampled))
            yield "Fig. 13", measure, f"{beta:g}", "has-exact", ours


def by_heterogeneity(rates: Floats, effort: Effort) -> Iterator[Value]:
    """Return Fig. 14: more or fewer of the 15 workers are V100 instead of T4."""
    mixes = {"1.1": [7, 5, 3], "1.15": [5, 5, 5], "1.21": [3, 5, 7], "1.26": [1, 5, 9]}
    for label, (t4, p100, v100) in mixes.items():
        kinds = [0] * t4 + [1] * p100 + [2] * v100
        workers = [[kinds[at : at + 5].count(kind) for kind in range(3)] for at in (0, 5, 10)]
        task = problem(rates[:JOBS], workers)
        best = has_exact(task).mean_jct_s
        runs = {
            **{name: run().mean_jct_s for name, run in optimuses(task).items()},
            "has": has(task).mean_jct_s,
            JPS[60]: float(np.mean([_sampler(task, 60, at)().mean_jct_s for at in range(effort.rounds)])),
        }
        for name, jct_s in runs.items():
            yield "Fig. 14", LOSS, label, name, 100 * (jct_s / best - 1)
        yield "Fig. 14", JCT, label, "has-exact", best
        yield "Fig. 14", "H, Eq. 35", label, "has-exact", heterogeneity(rates[:JOBS], workers)


def with_errors(rates: Floats, effort: Effort) -> Iterator[Value]:
    """Return Fig. 15: what is decided with wrong throughputs, and what it costs with the right ones."""
    workers = counts(15)
    true = problem(rates[:JOBS], workers)
    methods: Mapping[str, Callable[[Problem, int], Shares]] = {
        "has": lambda task, _: has(task),
        JPS[60]: lambda task, at: jps(task, np.random.default_rng(at), 60),
        "has-exact": lambda task, _: has_exact(task),
    }
    for name, method in methods.items():
        exact_s = float(np.mean([method(true, at).mean_jct_s for at in range(effort.rounds)]))
        for error in (0, 10, 20, 30):
            times = []
            for at in range(effort.rounds):
                rng = np.random.default_rng([at, error])
                wrong = rates[:JOBS] * rng.uniform(1 - error / 100, 1 + error / 100, rates[:JOBS].shape)
                times.append(Shares(true, method(problem(wrong, workers), at).workers.copy()).mean_jct_s)
            yield "Fig. 15", MORE, f"{error}", name, 100 * (float(np.mean(times)) / exact_s - 1)


def by_workers(rates: Floats, effort: Effort) -> Iterator[Value]:
    """Return Fig. 16 and Table V."""
    for workers in effort.workers:
        task = problem(rates[:JOBS], counts(workers))
        schemes: dict[str, Callable[[], Shares]] = {
            **optimuses(task),
            JPS[40]: _sampler(task, 40),
            "has-exact": partial(has_exact, task),
        }
        if workers <= 100:
            schemes["has"] = partial(has, task)
        setting, means = f"{workers}", {}
        for name, run in schemes.items():
            runs = [timed(run) for _ in range(effort.rounds if name == JPS[40] else 1)]
            yield "Table V", ART, setting, name, min(took_s for took_s, _ in runs)
            jct_s = means[name] = float(np.mean([each.mean_jct_s for _, each in runs]))
            communication_s = float(np.mean([network_s(task, each.workers).mean() for _, each in runs]))
            yield "Fig. 16", JCT, setting, name, jct_s
            yield "Fig. 16", "communication, s", setting, name, communication_s
            yield "Fig. 16", "computation, s", setting, name, jct_s - communication_s
        for name in optimuses(task):
            yield "Fig. 16", BELOW, setting, name, 100 * (1 - means[JPS[40]] / means[name])


def optimuses(task: Problem) -> dict[str, Callable[[], Shares]]:
    """Return Optimus and Optimus-LB, each in every order of workers."""
    return {
        in_order(scheme, order): partial(optimus, task, equal=scheme == "optimus-shares", order=order)
        for scheme in ("optimus-shares", "optimus-lb")
        for order in ORDERS
    }


def _sampler(task: Problem, number: int, seed: int = 0) -> Callable[[], Shares]:
    """Return what draws another sample of JPS at each call."""
    rng = np.random.default_rng(seed)
    return lambda: jps(task, rng, number)


def timed(run: Callable[[], Shares]) -> tuple[float, Shares]:
    """Return CPU seconds and shares."""
    began = time.process_time()
    shares = run()
    return time.process_time() - began, shares
