"""The mixed clusters and the jobs of HAS/JPS (TPDS 2024).

Machines of 5 GPUs, one type a machine, T4, P100 and V100 in turn, 300 Gbps inside and 10 Gbps between machines.
Jobs are those of its Table III.
"""

from collections.abc import Sequence

import numpy as np

from cranny.model.profile import library
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Training

GPUS_PER_MACHINE = 5
INSIDE_GBPS, BETWEEN_GBPS = 300.0, 10.0
GPU_TYPES = ("T4", "P100", "V100")
# Samples and epochs of Table III, by the name of the model in our profiles.
MODELS = {
    "resnet101": (50_000, 200),
    "resnet18": (100_000, 200),
    "vgg19": (50_000, 200),
    "alexnet": (50_000, 100),
    "transformer-wikitext": (36_718, 3),
}


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
