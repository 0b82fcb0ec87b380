"""Experiments with resets: the policies in the simulator, and Gavel's rounds. Each takes one fit.

An epoch of the paper's jobs is an iteration of the simulator's, since the paper exchanges gradients once an epoch.
All jobs come at time zero, can have from one to all workers, and move for nothing unless said otherwise.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import numpy as np

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.profile import ModelProfile, library
from cranny.policies._shared.heterogeneous.problem import Floats, equal_s, fairness
from cranny.policies.gavel import gavel
from cranny.policies.has import HasExact, HasResets
from cranny.policies.has.has_resets import bound_s
from cranny.repro.has.paper import FAIR, JCT, JPS, LESS, ORDERS, SPAN, WORST, in_order
from cranny.repro.has.static import JOBS, Effort, Value
from cranny.repro.has.throughputs import BETWEEN_GBPS, GPU_TYPES, GPUS_PER_MACHINE, MODELS, counts, problem
from cranny.run import Result, run_many
from cranny.scenario import Scenario

STATIC = {"margin": 1e6}  # that no move reaches
POLICIES: Mapping[str, tuple[str, dict[str, float | str]]] = {
    "has": ("has", {}),
    JPS[60]: ("jps", {}),
    "has-exact": ("has-exact", {}),
    "has-resets": ("has-resets", {}),
    **{in_order("optimus-lb", order): ("optimus-lb", {"order": order}) for order in ORDERS},
    "las": ("las", {}),
}
POWERS = (0.0, 1.0, 2.0, 3.0, 4.0)
SUMMARY = attrgetter("summary")  # of a result
MOVE_S = (0.0, 60.0, 600.0, 3600.0)


def cluster() -> Cluster:
    """Return three machines of five GPUs, each of another type."""
    machines = tuple(Machine(name, GPUS_PER_MACHINE, name) for name in GPU_TYPES)
    return Cluster.of(Switch("core", machines, (BETWEEN_GBPS,) * len(machines)))


def jobs(rates: Floats, restart_s: float = 0.0) -> list[Job]:
    """Return the paper's jobs for the simulator."""
    made = []
    for name, row in zip(MODELS, rates, strict=False):
        samples, epochs = MODELS[name]
        epoch_s = samples / (GPUS_PER_MACHINE * row[0])
        model = ModelProfile(
            f"{name}-epoch", library()[name].grad_bytes, 1e3 * epoch_s, batch=samples // GPUS_PER_MACHINE
        )
        made.append(
            Job(
                name,
                GPUS_PER_MACHINE,
                model,
                "ring",
                duration_s=epochs * epoch_s,
                least_gpus=1,
                most_gpus=len(GPU_TYPES) * GPUS_PER_MACHINE,
                speeds={kind: float(rate / row[0]) for kind, rate in zip(GPU_TYPES, row, strict=True)},
                restart_s=restart_s,
            )
        )
    return made


def with_resets(rates: Floats, effort: Effort) -> Iterator[Value]:  # noqa: ARG001 - same signature as the others
    """Return Fig. 17, and how fair each scheme is with resets."""
    task = problem(rates[:JOBS], counts(15))
    rounds = gavel(task, scale=[GPUS_PER_MACHINE] * JOBS)
    static = _replay([(policy, options | STATIC) for policy, options in POLICIES.values()], rates)
    moving = _replay(POLICIES.values(), rates)
    spans = [rounds.jct_s, *moving]
    for scheme, jct_s in zip(("gavel", *POLICIES), spans, strict=True):
        yield "Fig. 17", JCT, "with resets", scheme, float(jct_s.mean())
        yield "Fig. 17", "makespan, s", "with resets", scheme, float(jct_s.max())
        yield "Fig. 17", FAIR, "with resets", scheme, fairness(jct_s, equal_s(task))
        yield "Fig. 17", WORST, "with resets", scheme, float((jct_s / equal_s(task)).max())
    for scheme, before_s, jct_s in zip(POLICIES, static, moving, strict=True):
        yield "Fig. 17", JCT, "static", scheme, float(before_s.mean())
        yield "Fig. 17", "makespan, s", "static", scheme, float(before_s.max())
        yield "Fig. 17", LESS, "with resets", scheme, _less(jct_s.mean(), before_s.mean())
        yield "Fig. 17", SPAN, "with resets", scheme, _less(jct_s.max(), before_s.max())
        yield (
            "Fig. 17",
            "mean JCT less than Gavel's, %",
            "with resets",
            scheme,
            _less(jct_s.mean(), rounds.mean_jct_s),
        )
        yield (
            "Fig. 17",
            "makespan less than Gavel's, %",
            "with resets",
            scheme,
            _less(jct_s.max(), rounds.jct_s.max()),
        )
    yield "Fig. 17", JCT, "with resets", "bound", bound_s(task)


def by_power(rates: Floats, effort: Effort) -> Iterator[Value]:  # noqa: ARG001 - same signature as the others
    """Return what becomes of has-resets with other powers of remaining work, with and without its limit."""
    limits = {"has-resets": 2.0, "has-resets-unlimited": 1e6}
    for power in POWERS:
        for scheme, slowdown in limits.items():
            (jct_s,) = _replay([("has-resets", {"power": power, "slowdown": slowdown})], rates)
            yield "power", JCT, f"{power:g}", scheme, float(jct_s.mean())
            yield "power", FAIR, f"{power:g}", scheme, fairness(jct_s, equal_s(problem(rates[:JOBS], counts(15))))


def _replay(policies: Iterable[tuple[str, Mapping[str, float | str]]], rates: Floats) -> list[Floats]:
    """Return the JCT of each job under policies with options, (jobs,) each."""
    scenarios = [Scenario(cluster(), jobs(rates[:JOBS]), policy, options=options) for policy, options in policies]
    return run_many(scenarios, keep=_jct_s, processes=1)


def _jct_s(result: Result) -> Floats:
    by_job = dict(result.jobs.select("job_id", "jct_s").iter_rows())
    return np.array([by_job[name] for name in list(MODELS)[:JOBS]])


def _less(ours: float, other: float) -> float:
    return float(100 * (1 - ours / other))


def by_scale(rates: Floats, effort: Effort) -> Iterator[Value]:  # noqa: ARG001 - same signature as the others
    """Return Fig. 18: Gavel when one job asks for fewer GPUs than five; mean over which job that is."""
    task = problem(rates[:JOBS], counts(15))
    for scale in range(1, GPUS_PER_MACHINE + 1):
        times = [
            gavel(task, [scale if job == one else GPUS_PER_MACHINE for job in range(JOBS)]).mean_jct_s
            for one in range(JOBS)
        ]
        yield "Fig. 18", JCT, f"{scale}", "gavel", sum(times) / JOBS


class IgnoresRestarts(HasExact):
    """has-exact that decides as if moves cost nothing."""

    counts_restarts = False


def by_cost(rates: Floats, effort: Effort) -> Iterator[Value]:  # noqa: ARG001 - same signature as the others
    """Return what becomes of has-exact if moves cost time, decided with and without regard to that."""
    for restart_s in MOVE_S:
        work = jobs(rates[:JOBS], restart_s)
        policies = {
            "has-exact": HasExact(),
            "has-exact-blind": IgnoresRestarts(margin=0.0),
            "has-resets": HasResets(),
        }
        scenarios = [Scenario(cluster(), work, policy) for policy in policies.values()]
        for scheme, summary in zip(policies, run_many(scenarios, keep=SUMMARY, processes=1), strict=True):
            yield "moving", JCT, f"{restart_s:g}", scheme, summary["mean_jct_s"]
            yield "moving", "moves", f"{restart_s:g}", scheme, summary["moves"]
