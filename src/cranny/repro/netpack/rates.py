"""Fig. 15: the rates that NetPack expects, beside those of the simulator's networks, as jobs come and go.

Five servers of two GPUs, as on the testbed; jobs come and go by a timetable, and NetPack places them. NetPack's
estimate and the network `steady` are the same water-filling, so they agree by construction. The network `phases`
simulates iterations one by one: gradients are sent while the backward pass still computes, and jobs share a link
only while they communicate at the same time. In a simulator nothing is nearer to the paper's measurement.
"""

from typing import NamedTuple

from cranny.core.state import ClusterState
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.network.networks import network
from cranny.network.steady.rates import RateEstimate, stream
from cranny.policies.netpack import NetPack
from cranny.repro.netpack.setups import setup

# Model, second of arrival, second of departure; three workers each, so that two jobs share a server.
TIMETABLE = (("vgg16", 0.0, 240.0), ("vgg19", 60.0, 180.0), ("alexnet", 120.0, 300.0))
WORKERS = 3
NETWORKS = ("steady", "phases")


class JobRates(NamedTuple):
    """One job from one event to the next: what it sends, on average over its iterations."""

    job: str
    from_s: float
    to_s: float
    rate_gbps: float  # that NetPack expects while the job communicates
    estimate_gbps: float  # on average, if it communicates at that rate
    steady_gbps: float
    phases_gbps: float


def job_rates() -> list[JobRates]:
    """Place and release the jobs by the timetable; return the rates between events."""
    cluster = setup("testbed", "poisson").cluster()
    state, policy, expected = ClusterState(cluster), NetPack(), RateEstimate(cluster)
    networks = {name: network(name).on(cluster) for name in NETWORKS}
    slowdown: dict[tuple[str, str], float] = {}
    times_s = sorted({at_s for _, *both in TIMETABLE for at_s in both})
    rates = []
    for now_s, next_s in zip(times_s, [*times_s[1:], None], strict=True):
        for model, start_s, end_s in TIMETABLE:
            if end_s == now_s:
                state.release(model)
                expected.remove(model)
                changed = {name: each.end(model) for name, each in networks.items()}
            elif start_s == now_s:
                job = Job(model, WORKERS, model, "ina", start_s)
                placement = policy.place(job, state.snapshot(now_s))
                if placement is None:
                    raise CrannyError(f"{model} cannot be placed")
                state.place(job, placement)
                expected.add(job, placement)
                running = state.snapshot(now_s).running[model]
                changed = {name: each.start(running) for name, each in networks.items()}
            else:
                continue
            slowdown |= {(name, job_id): slow for name, found in changed.items() for job_id, slow in found}
        if next_s is None:
            break
        for job_id, running in state.snapshot(now_s).running.items():
            gigabits = stream(cluster, running.job, running.placement).gigabits
            alone_s = running.job.profile.iteration_s
            rate_gbps = expected.rate_gbps(job_id)
            mean_gbps = gigabits / (alone_s + gigabits / rate_gbps) if rate_gbps else 0.0
            steady, phases = (gigabits / (alone_s * slowdown[name, job_id]) for name in NETWORKS)
            rates.append(JobRates(job_id, now_s, next_s, rate_gbps, mean_gbps, steady, phases))
    return rates
