"""The testbed of CASSINI (NSDI'24, Sec. 5.1), and the jobs that come to it.

24 servers with one GPU and a link of 50 Gbps each, 2:1 oversubscribed. The paper's 13 logical switches are read as
12 switches of two servers and one above them, so that a switch's uplink is as fast as one server's. (Its 48 links
fit six switches of four servers with two uplinks each, six above and one on top; pairs with one uplink are a tree
that represents it.)

Jobs: 200 to 1,000 iterations, at first 1 to 12 workers, all models equally likely, batches from Table 3. A profile
of ours is stretched in proportion to the batch. With six workers that gives the communication times of Table 2 for
VGG16 (148 ms in both), VGG19 (153 and 168), WideResNet101 (135 and 138), not for ResNet50 (27 and 59). The BERT
family would compute too fast: two RoBERTa of batch 12 score 0.8 there, so each sends for 60 % of the time. Its
computing is stretched by `LANGUAGE` more, which gives that score.

DLRM has its embeddings partitioned over its workers and the rest replicated, as in Sec. 5.1: vectors go from all
to all in the forward pass, their gradients in the backward pass. Its batches, 16 to 1,024, are far below the
16,384 at which we measured it, and do not fill a GPU: computing takes as long as measured at any of them. GPT-1
and GPT-2 reduce their tied embeddings between the first stage and the last (Fig. 1(b)).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.profile import ModelProfile, library
from cranny.network.interleave.demand import circles
from cranny.repro.cassini.paper import DATA_PARALLEL, MODELS

LINK_GBPS = 50.0
GPUS = 24
ITERATIONS = (200, 1000)
WORKERS = (1, 12)
LANGUAGE = 4.3  # how much longer than in the profiles, in proportion to the batch, the BERT family computes
JITTER = 0.005  # of computing times; at it the paper's few adjustments can be had (docs/understand/phases.md)
LOADS = (0.8, 1.0)  # of a Poisson trace (Sec. 5.1); drawn for each seed
FP32_BYTES, EXCHANGES = 4, 2  # in the forward pass, and in the backward pass
ARRIVE_S = 60.0  # when the new jobs of a dynamic trace come; the paper does not say
STRESS = ("dlrm", "resnet50")  # that arrive while the cluster is busy (Sec. 5.3)


def testbed() -> Cluster:
    """Return the cluster of Fig. 10."""
    return Cluster.fat_tree(GPUS // 2, 2, 1, LINK_GBPS, oversubscription=2.0)


def profile(model: str, batch: int) -> ModelProfile:
    """Return one of our profiles as the model would train at a batch of the paper."""
    kind = MODELS[model]
    measured = library()[kind.profile]
    if kind.tables[0]:
        tables, rows, width = kind.tables
        dense = measured.grad_bytes - tables * rows * width * FP32_BYTES
        exchanged = EXCHANGES * batch * tables * width * FP32_BYTES
        return replace(measured, grad_bytes=dense, exchanged_bytes=exchanged, gradient_buckets=())
    made = measured.stretched(batch / measured.batch * (LANGUAGE if kind.language else 1.0))
    if not kind.tokens[0]:
        return made
    # What a layer sends is known: tokens times their width. Peak memory would give far too much.
    tokens, width = kind.tokens
    held = made.layers * batch * tokens * width * 2.0 + 12.0 * made.params
    return replace(made, peak_mem_mb=held / 1e6, tied_bytes=kind.vocabulary * width * FP32_BYTES)


def job(
    job_id: str,
    model: str,
    batch: int,
    gpus: int,
    iterations: int,
    submit_s: float = 0.0,
    *,
    rigid: bool = False,
    measured: bool = False,
    replicated: bool = False,
) -> Job:
    """Return a job of so many iterations.

    The paper's hosts tune the number of workers. Here jobs may have half as many as they ask for, if they are data
    parallel, but no more: our jobs keep their whole batch when resized, and more workers would have too little to
    compute. `rigid` ones keep theirs. With `measured` the batch is that of our profile, and not the paper's: jobs
    compute as fast as on an H200. With `replicated` embeddings are not partitioned.
    """
    kind = MODELS[model]
    group = kind.tp * kind.pp
    gpus = max(group, gpus - gpus % group)
    as_measured = replicated if kind.tables[0] else measured
    made = library()[kind.profile] if as_measured else profile(model, batch)
    sizes: dict[str, Any] = {"least_gpus": -(-gpus // 2)} if not rigid and group == 1 else {}
    return Job(
        id=job_id,
        gpus=gpus,
        model=made,
        collective="ring",
        submit_s=submit_s,
        duration_s=iterations * made.iteration_s,
        tp=kind.tp,
        pp=kind.pp,
        **sizes,
    )


def drawn(
    rng: np.random.Generator,
    job_id: str,
    models: Sequence[str],
    submit_s: float = 0.0,
    *,
    workers: tuple[int, int] = WORKERS,
    **form: bool,
) -> Job:
    """Draw a job as Sec. 5.1 does, in a form of `job`."""
    model = str(rng.choice(list(models)))
    low, high = MODELS[model].batches
    batch, gpus = int(rng.integers(low, high + 1)), int(rng.integers(workers[0], workers[1] + 1))
    iterations = int(rng.integers(ITERATIONS[0], ITERATIONS[1] + 1))
    return job(f"{job_id}-{model}", model, batch, gpus, iterations, submit_s, **form)


def dynamic(
    seed: int,
    models: Sequence[str] = DATA_PARALLEL,
    arriving: Sequence[str] = STRESS,
    *,
    sets: int = 1,
    gpus: int = GPUS,
    **form: bool,
) -> list[Job]:
    """Return the dynamic trace: jobs that fill the cluster are present, and a new set arrives, or several.

    A set is one job of each of `arriving`, and then others that together request as many GPUs as the
    cluster has. A job has at most half of the GPUs, as Sec. 5.1 states for 24: with more, hardly two would run.
    All are in one form of `job`.
    """
    workers = WORKERS[0], min(WORKERS[1], gpus // 2)
    rng = np.random.default_rng([seed, 0])
    jobs: list[Job] = []
    for number in range(sets + 1):
        requested, at_s = 0, number * ARRIVE_S
        first = list(arriving) if number else []
        while requested < gpus:
            only = (first.pop(0),) if first else models
            jobs.append(drawn(rng, f"{len(jobs):02d}", only, at_s, workers=workers, **form))
            requested += jobs[-1].gpus
    return jobs


def poisson(seed: int, jobs: int = 40, models: Sequence[str] = tuple(MODELS)) -> list[Job]:
    """Return the Poisson trace: jobs arrive so fast that on average a share of the GPUs, drawn, serves one."""
    rng = np.random.default_rng([seed, 1])
    load = rng.uniform(*LOADS)
    made = [drawn(rng, f"{number:02d}", models) for number in range(jobs)]
    mean_gpu_s = float(np.mean([each.gpus * alone_s(each) for each in made]))
    times_s = np.cumsum(rng.exponential(mean_gpu_s / (load * GPUS), jobs))
    return [replace(each, submit_s=float(at_s)) for each, at_s in zip(made, times_s, strict=True)]


def alone_s(each: Job) -> float:
    """Return how long a job runs with every worker on a server of its own, and no other job."""
    found = circles(testbed(), each, tuple(range(each.gpus)))
    iteration_s = next(iter(found.values())).iteration_s if found else each.profile.iteration_s
    return (each.duration_s or 0.0) / each.profile.iteration_s * iteration_s
