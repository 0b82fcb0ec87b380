"""Experiments 5 to 7: jobs of 4 to 12 workers on the paper's testbed, by the communication model alone.

Eight machines of four GPUs, one switch, 100 Gbps, some GPUs taken by background jobs. The text does not say which,
but it fits three idle machines: a job of 12 has three whole machines under "Elasticflow", and with 5 machines on
for Titan and 7 for Elasticflow at 8 workers, the machine-hours of Fig. 9(b) go with the times of Fig. 12. The
other five then have 8 to 11 GPUs free (a job of 8 opens no idle machine under Titan, one of 12 does). All such
layouts are tried; what is reported is the mean over them.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cranny.core.state import ClusterState
from cranny.core.traffic import communication
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import library
from cranny.policies import policy
from cranny.repro.experiment import Cell, Results
from cranny.repro.titan.paper import TEXT, TitanReading

MACHINES, GPUS, IDLE = 8, 4, 3
WORKERS = (4, 6, 8, 10, 12)
MODELS = ("resnet50", "vgg16")
SCHEMES = ("titan", "consolidate-idle", "fragments-first", "tiresias", "best-fit")
BATCH, EPOCHS, IMAGES = 512, 200, 50_000  # the batch of all workers together
HOUR_S = 3600.0
SHOWN = (4, 4, 4, 3, 2, 2, 1, 1)  # free GPUs of the layout that is drawn


class PlacementRun(NamedTuple):
    """A job that is placed on the testbed.

    Measures: `machines_on`; `comm_s` of an epoch; `throughput`, images a second; and `machine_hours`.
    """

    machines: tuple[int, ...]  # of each rank
    measures: dict[str, float]


Testbed = Results[tuple[str, int], PlacementRun]  # by model and workers; layouts are its seeds


def layouts() -> Iterator[tuple[int, ...]]:
    """Yield the free GPUs of the machines for every layout that fits the text, most free GPUs first."""
    partly = MACHINES - IDLE
    for threes in range(partly, -1, -1):
        for twos in range(partly - threes, -1, -1):
            free = (3,) * threes + (2,) * twos + (1,) * (partly - threes - twos)
            if 8 <= sum(free) < 12:
                yield (GPUS,) * IDLE + free


def run_testbeds() -> dict[str, Testbed]:
    """Place every job under each reading that changes these figures, by its key; ours has none."""
    numbers = {figure.number for figure in TEXT.testbed}
    others = {each.key: run_testbed(each) for each in TEXT.readings if numbers & {*each.figures}}
    return {"": run_testbed(), **others}


def run_testbed(reading: TitanReading | None = None) -> Testbed:
    """Place every job in every layout under every scheme; a job that must wait has no run."""
    every = list(layouts())
    runs: dict[Cell[tuple[str, int]], PlacementRun] = {}
    for cell in [
        Cell((model, workers), scheme, number)
        for number in range(len(every))
        for model in MODELS
        for workers in WORKERS
        for scheme in SCHEMES
    ]:
        run = _placed(cell, every[cell.seed], reading)
        if run is not None:
            runs[cell] = run
    image_s = _image_s(Results(runs, len(every)))
    for ((model, workers), _, _), run in runs.items():
        epoch_s = image_s[model] * IMAGES / workers + run.measures["comm_s"]
        run.measures["throughput"] = IMAGES / epoch_s
        run.measures["machine_hours"] = run.measures["machines_on"] * EPOCHS * epoch_s / HOUR_S
    return Results(runs, len(every))


def _placed(
    cell: Cell[tuple[str, int]], free: tuple[int, ...], reading: TitanReading | None
) -> PlacementRun | None:
    """Place one job beside the background jobs."""
    state = testbed(free)
    model, workers = cell.setup
    collective, name = "halving-doubling", cell.scheme
    if reading is not None:
        collective, name = reading.collective, reading.runs(cell.scheme)
    job = Job(id="job", gpus=workers, model=model, collective=collective)
    placement = policy(name).place(job, state.snapshot())
    if placement is None:
        return None
    on = {machine for machine, left in enumerate(free) if left < GPUS} | set(placement.machines)
    comm_s = communication(state.cluster, job, placement.machines).comm_s
    return PlacementRun(placement.machines, {"machines_on": len(on), "comm_s": comm_s * IMAGES / BATCH})


def testbed(free: tuple[int, ...]) -> ClusterState:
    """Return the testbed with background jobs of one GPU each."""
    cluster = Cluster.fat_tree(racks=1, machines_per_rack=len(free), gpus_per_machine=GPUS, link_gbps=100.0)
    state = ClusterState(cluster)
    for machine, left in enumerate(free):
        for number in range(GPUS - left):
            job = Job(id=f"background {machine}.{number}", gpus=1, model="resnet50")
            state.place(job, Placement(machines=(machine,)))
    return state


def _image_s(placed: Testbed) -> Mapping[str, float]:
    """Return the seconds that a worker computes on one image: the only number that is fitted.

    The testbed shares one GPU among four containers, so no profile of ours fits. ResNet-50 is set so that
    "Elasticflow" with 12 workers trains as many images a second as in Fig. 10(a); VGG-16 by the ratio of the two
    models in our profiles.
    """
    known = next(figure for figure in TEXT.testbed if figure.measure == "throughput")
    scheme = "consolidate-idle"
    comm = placed.values((known.model, known.workers), scheme, "comm_s")
    epoch_s = IMAGES / known.values[scheme]
    resnet_s = (epoch_s - sum(comm) / len(comm)) * known.workers / IMAGES
    measured = {model: library()[model] for model in MODELS}
    per_image = {model: profile.iteration_ms / profile.batch for model, profile in measured.items()}
    return {model: resnet_s * per_image[model] / per_image["resnet50"] for model in MODELS}
