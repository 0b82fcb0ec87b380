"""Circles of the paper's jobs on one link of 50 Gbps, in four set-ups.

- *given*: shapes from what the paper states of its jobs. Iteration times, which it does not give, are
  chosen so that the best score of a snapshot is the paper's: scores are no test here, gains are.
- *H200*: our measured profiles as they are. The GPU is faster than the paper's A100 and batches are smaller, while
  links have the same 50 Gbps: jobs communicate for a larger share of their iteration.
- *batch*: the same profiles with computing in proportion to the paper's batches (`setups.profile`).
- *even*: as *batch*, but each job slowed to the iteration time of the longest on the link, as one may by choosing
  batches.
"""

from collections.abc import Sequence
from functools import lru_cache

from cranny.model.circle import Circle
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.profile import ModelProfile, library
from cranny.network.interleave.demand import circles
from cranny.repro.cassini.paper import MODELS, TABLE2, TEXT
from cranny.repro.cassini.setups import LINK_GBPS, profile

GIVEN, H200, BATCH, EVEN = "given", "H200", "batch", "even"
SETUPS = {
    GIVEN: "shapes from the paper",
    H200: "H200 as measured",
    BATCH: "the paper's batches",
    EVEN: "batches, equal iteration times",
}
WORKERS = 6  # of a job of a snapshot: with them communication takes as long as in Table 2 (repro-cassini.md)
PAIR_WORKERS, PAIR_BATCH = 2, 1400  # of Fig. 2, which gives no batch: that of snapshots 2 and 5
SIDE = 6  # servers on either side of the link
SLOWEST, CLOSE = 100.0, 1e-6  # of what a job is slowed by


@lru_cache(maxsize=4096)
def on_link(model: ModelProfile, workers: int) -> Circle:
    """Return what a job requests of the link between its two halves, with a ring over all workers."""
    cluster = Cluster.fat_tree(2, SIDE, 1, LINK_GBPS, oversubscription=float(SIDE))
    near = (workers + 1) // 2
    machines = (*range(near), *range(SIDE, SIDE + workers - near))
    return circles(cluster, Job("job", workers, model, "ring"), machines)[2 * SIDE]


@lru_cache(maxsize=256)
def slowed(model: ModelProfile, workers: int, iteration_s: float) -> Circle:
    """Return the circle of a model that computes so much longer that its iteration takes so long."""
    low, high = 1.0, SLOWEST
    while high - low > CLOSE:
        middle = (low + high) / 2
        shorter = on_link(model.stretched(middle), workers).iteration_s < iteration_s
        low, high = (middle, high) if shorter else (low, middle)
    return on_link(model.stretched(low), workers)


def measured_circles(jobs: Sequence[tuple[str, int]], workers: int, setup: str) -> tuple[Circle, ...]:
    """Return the circles of jobs, each a model and its batch, from our profiles."""
    if setup == H200:
        return tuple(on_link(library()[MODELS[model].profile], workers) for model, _ in jobs)
    profiles = [profile(model, batch) for model, batch in jobs]
    found = tuple(on_link(each, workers) for each in profiles)
    if setup == BATCH:
        return found
    longest_s = max(circle.iteration_s for circle in found)
    return tuple(slowed(each, workers, longest_s) for each in profiles)


def up_last(iteration_ms: float, up_ms: float, gbps: float) -> Circle:
    """Return a job that computes first and sends at the end of its iteration."""
    whole_s = iteration_ms / 1e3
    return Circle(whole_s, ((whole_s - up_ms / 1e3, whole_s, gbps),))


def snapshot_circles(number: int, setup: str) -> tuple[Circle, ...]:
    """Return the circles of a snapshot of Table 2."""
    snapshot = TABLE2[number - 1]
    jobs = snapshot.jobs
    if setup != GIVEN:
        return measured_circles([(job.model, job.batch) for job in jobs], WORKERS, setup)
    return tuple(
        up_last(snapshot.iteration_ms, job.alone_ms or job.cassini_ms, job.gbps or LINK_GBPS) for job in jobs
    )


def pair_circles(setup: str) -> tuple[tuple[Circle, ...], float]:
    """Return the two VGG19 jobs of Fig. 2, and the Gbps that their link carries."""
    if setup != GIVEN:
        return measured_circles([("vgg19", PAIR_BATCH)] * 2, PAIR_WORKERS, setup), LINK_GBPS
    # The paper shifts one job by 120 ms, which we take as half of its iteration, and sees 22 Gbps for each of two:
    # the link carries 44. A ring of two sends every gradient once in either direction.
    paper = TEXT.claims["fig2"].numbers
    gbps = 2.0 * paper["shared_gbps"]
    up_ms = library()["vgg19"].grad_bytes * 8 / (gbps * 1e9) * 1e3
    circle = up_last(2 * paper["shift_ms"], up_ms, gbps)
    return (circle, circle), gbps
