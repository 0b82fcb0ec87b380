"""Experiments 5 to 7: jobs of 4 to 12 workers on the paper's testbed, by the communication model alone.

Eight machines of four GPUs, one switch, 100 Gbps, some GPUs taken by background jobs. The text does not say which,
but it fits three idle machines: a job of 12 has three whole machines under "Elasticflow", and with 5 machines on
for Titan and 7 for Elasticflow at 8 workers, the machine-hours of Fig. 9(b) go with the times of Fig. 12. The
other five then have 8 to 11 GPUs free (a job of 8 opens no idle machine under Titan, one of 12 does). All such
layouts are tried; what is reported is the mean over them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cranny.core.state import ClusterState
from cranny.core.traffic import communication
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import library
from cranny.policies import policy
from cranny.report.confidence import Estimate, estimate
from cranny.repro.titan.paper import TEXT

MACHINES, GPUS, IDLE = 8, 4, 3
WORKERS = (4, 6, 8, 10, 12)
MODELS = ("resnet50", "vgg16")
SCHEMES = ("titan", "consolidate-idle", "fragments-first", "tiresias", "best-fit")
BATCH, EPOCHS, IMAGES = 512, 200, 50_000  # the batch of all workers together
HOUR_S = 3600.0
SHOWN = (4, 4, 4, 3, 2, 2, 1, 1)  # free GPUs of the layout that is drawn


class PlacementRun(NamedTuple):
    """A job on the testbed under one policy; nothing is measured if it must wait."""

    policy: str
    model: str
    workers: int
    free: tuple[int, ...]
    machines: tuple[int, ...] | None  # of each rank
    machines_on: int = 0
    comm_s: float = math.nan  # of an epoch
    throughput: float = math.nan  # images a second
    machine_hours: float = math.nan


def layouts() -> Iterator[tuple[int, ...]]:
    """Yield the free GPUs of the machines for every layout that fits the text, most free GPUs first."""
    partly = MACHINES - IDLE
    for threes in range(partly, -1, -1):
        for twos in range(partly - threes, -1, -1):
            free = (3,) * threes + (2,) * twos + (1,) * (partly - threes - twos)
            if 8 <= sum(free) < 12:
                yield (GPUS,) * IDLE + free


def run_testbed() -> list[PlacementRun]:
    """Place every job in every layout under every scheme."""
    placed = [
        _placed(scheme, model, workers, free)
        for free in layouts()
        for model in MODELS
        for workers in WORKERS
        for scheme in SCHEMES
    ]
    image_s = _image_s(placed)
    timed = []
    for one in placed:  # nan where the job must wait
        epoch_s = image_s[one.model] * IMAGES / one.workers + one.comm_s
        hours = one.machines_on * EPOCHS * epoch_s / HOUR_S
        timed.append(one._replace(throughput=IMAGES / epoch_s, machine_hours=hours))
    return timed


def _placed(scheme: str, model: str, workers: int, free: tuple[int, ...]) -> PlacementRun:
    """Place one job beside the background jobs."""
    state = testbed(free)
    placement = policy(scheme).place(_job(model, workers), state.snapshot())
    if placement is None:
        return PlacementRun(scheme, model, workers, free, None)
    on = {machine for machine, left in enumerate(free) if left < GPUS} | set(placement.machines)
    comm_s = communication(state.cluster, _job(model, workers), placement.machines).comm_s
    return PlacementRun(scheme, model, workers, free, placement.machines, len(on), comm_s * IMAGES / BATCH)


def testbed(free: tuple[int, ...]) -> ClusterState:
    """Return the testbed with background jobs of one GPU each."""
    cluster = Cluster.fat_tree(racks=1, machines_per_rack=len(free), gpus_per_machine=GPUS, link_gbps=100.0)
    state = ClusterState(cluster)
    for machine, left in enumerate(free):
        for number in range(GPUS - left):
            job = Job(id=f"background {machine}.{number}", gpus=1, model="resnet50")
            state.place(job, Placement(machines=(machine,)))
    return state


def _job(model: str, workers: int) -> Job:
    return Job(id="job", gpus=workers, model=model, collective="halving-doubling")


def _image_s(placed: list[PlacementRun]) -> Mapping[str, float]:
    """Return the seconds that a worker computes on one image: the only number that is fitted.

    The testbed shares one GPU among four containers, so no profile of ours fits. ResNet-50 is set so that
    "Elasticflow" with 12 workers trains as many images a second as in Fig. 10(a); VGG-16 by the ratio of the two
    models in our profiles.
    """
    known = next(figure for figure in TEXT.testbed if figure.measure == "throughput")
    scheme = "consolidate-idle"
    comm = [
        one.comm_s
        for one in placed
        if (one.policy, one.model, one.workers) == (scheme, known.model, known.workers) and one.machines
    ]
    epoch_s = IMAGES / known.values[scheme]
    resnet_s = (epoch_s - sum(comm) / len(comm)) * known.workers / IMAGES
    measured = {model: library()[model] for model in MODELS}
    per_image = {model: profile.iteration_ms / profile.batch for model, profile in measured.items()}
    return {model: resnet_s * per_image[model] / per_image["resnet50"] for model in MODELS}


def estimates(outcomes: Sequence[PlacementRun], measure: str, model: str, workers: int) -> dict[str, Estimate]:
    """Return a measure of every scheme over the layouts in which it places the job."""
    values: dict[str, list[float]] = {}
    for one in outcomes:
        if (one.model, one.workers) == (model, workers) and one.machines is not None:
            values.setdefault(one.policy, []).append(getattr(one, measure))
    return {scheme: estimate(each) for scheme, each in values.items()}
