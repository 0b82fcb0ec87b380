"""Experiments with resets: the policies in the simulator, and Gavel's rounds. Each takes one fit.

An epoch of the paper's jobs is an iteration of the simulator's, since the paper exchanges gradients once an epoch.
All jobs come at time zero, can have from one to all workers, and move for nothing unless said otherwise.
"""

from collections.abc import Iterator
from operator import attrgetter

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.profile import ModelProfile, library
from cranny.policies._shared.heterogeneous.problem import Floats
from cranny.policies.gavel import gavel
from cranny.policies.has import HasExact
from cranny.repro.has.paper import JCT, JPS, LESS, SPAN
from cranny.repro.has.static import JOBS, Effort, Value
from cranny.repro.has.throughputs import BETWEEN_GBPS, GPU_TYPES, GPUS_PER_MACHINE, MODELS, counts, problem
from cranny.run import run_many
from cranny.scenario import Scenario

STATIC = {"margin": 1e6}  # that no move reaches
POLICIES = {"has": "has", JPS[60]: "jps", "has-exact": "has-exact", "optimus-lb": "optimus-lb", "las": "las"}
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
    """Return Fig. 17."""
    work, where = jobs(rates[:JOBS]), cluster()
    rounds = gavel(problem(rates[:JOBS], counts(15)), scale=[GPUS_PER_MACHINE] * JOBS)
    gavels = {JCT: rounds.mean_jct_s, "makespan, s": float(rounds.jct_s.max())}
    for measure, value in gavels.items():
        yield "Fig. 17", measure, "with resets", "gavel", value
    scenarios = [
        Scenario(where, work, policy, options=options) for policy in POLICIES.values() for options in ({}, STATIC)
    ]
    summaries = iter(run_many(scenarios, keep=SUMMARY, processes=1))
    for scheme in POLICIES:
        moving, static = next(summaries), next(summaries)
        for setting, summary in (("static", static), ("with resets", moving)):
            yield "Fig. 17", JCT, setting, scheme, summary["mean_jct_s"]
            yield "Fig. 17", "makespan, s", setting, scheme, summary["makespan_s"]
        for measure, key in ((LESS, "mean_jct_s"), (SPAN, "makespan_s")):
            yield "Fig. 17", measure, "with resets", scheme, 100 * (1 - moving[key] / static[key])
        for measure, theirs, key in (
            ("mean JCT less than Gavel's, %", gavels[JCT], "mean_jct_s"),
            ("makespan less than Gavel's, %", gavels["makespan, s"], "makespan_s"),
        ):
            yield "Fig. 17", measure, "with resets", scheme, 100 * (1 - moving[key] / theirs)


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
        policies = {"has-exact": HasExact(), "has-exact-blind": IgnoresRestarts(margin=0.0)}
        scenarios = [Scenario(cluster(), work, policy) for policy in policies.values()]
        for scheme, summary in zip(policies, run_many(scenarios, keep=SUMMARY, processes=1), strict=True):
            yield "moving", JCT, f"{restart_s:g}", scheme, summary["mean_jct_s"]
            yield "moving", "moves", f"{restart_s:g}", scheme, summary["moves"]
