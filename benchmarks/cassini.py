"""CPU milliseconds to find how jobs share links best: on one link, and on all links of ten candidates.

On one link, jobs of one iteration time with one or two arcs each are drawn; together they ask for about what the
link has. The reference tries every rotation, on fewer angles. The cluster has 128 machines of 8 GPUs in 16
racks, 2:1 oversubscribed. Nine tenths of its GPUs run jobs that stay; each candidate places the jobs that wait
on the rest in another order. `fresh` candidates place all jobs anew, so that no link is the same in two of them.
The time is taken from placements to shifts, with nothing remembered of circles and links; what a placement
costs, which placing works out anyway, may be.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.measure import Budget, Measured, reference, timed_ms
from cranny.core.traffic import footprint
from cranny.model.circle import Circle
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.interleave import demand
from cranny.network.interleave.affinity import SharedLink, has_loop, shared_links
from cranny.network.interleave.compatibility import compatibility
from cranny.network.interleave.shifts import choose, interleave
from cranny.network.interleave.unified_circle import Search, doubled, unify

LINK_GBPS = 50.0
CASES = 100
RUNS = 5
COARSE = Search(precision_deg=15.0)  # for the reference, which takes a second for three jobs even so
RACKS, MACHINES_PER_RACK, GPUS = 16, 8, 8
CANDIDATES = 10
WAITING = 0.1  # of the GPUs
SCATTERED = 0.02  # of the GPUs change places, as they do when jobs come and go
SIZES = (2, 4, 8, 12, 16, 24, 32)
MODELS = (
    *("vgg11", "vgg16", "vgg19", "resnet50", "wideresnet101", "bert-base"),
    *("roberta-base", "camembert-base", "xlm-roberta-base", "gpt1", "gpt2"),
)
Seats = dict[int, tuple[int, ...]]  # machines of each job


def run() -> Measured:
    """Rotate drawn jobs on one link; then choose among candidates for a cluster."""
    metrics: dict[str, float] = {}
    for jobs in (2, 3, 5, 10):
        _one_link(metrics, jobs)
    book = reference("cassini")
    if book is not None:
        drawn = _draw(np.random.default_rng(1), 3)
        found = compatibility(drawn, LINK_GBPS, COARSE)
        table = doubled(drawn, found.unified)[:, : found.unified.angles].tolist()
        slow_ms = timed_ms(lambda: book.best(table, found.unified.rotations, LINK_GBPS))[0]
        quick_ms = min(_forgetful_ms(lambda: compatibility(drawn, LINK_GBPS, COARSE)) for _ in range(RUNS))
        metrics["times_faster_than_reference"] = slow_ms / quick_ms
        metrics["score_above_reference"] = found.score - book.best(table, found.unified.rotations, LINK_GBPS)[0]
    cluster = Cluster.fat_tree(RACKS, MACHINES_PER_RACK, GPUS, oversubscription=2.0)
    for name, waiting in (("candidates", WAITING), ("fresh", 1.0)):
        _candidates(metrics, name, cluster, waiting)
    limits = {"p99_ms_2_jobs": 1.0, "p99_ms_5_jobs": 20.0, "ms_candidates": 200.0}
    return Measured("cassini", metrics, [Budget(name, metrics[name], limit) for name, limit in limits.items()])


def _one_link(metrics: dict[str, float], jobs: int) -> None:
    """Add to the metrics the mean and 99th percentile of the time for so many jobs, and how often it was exact."""
    rng = np.random.default_rng(jobs)
    compatibility(_draw(rng, jobs), LINK_GBPS)  # compiled before time is taken
    times_ms, exact = [], 0
    for _ in range(CASES):
        drawn = _draw(rng, jobs)
        times_ms.append(timed_ms(lambda drawn=drawn: compatibility(drawn, LINK_GBPS))[0])  # type: ignore[misc]
        exact += compatibility(drawn, LINK_GBPS).method == "exact"
    metrics[f"ms_{jobs}_jobs"] = float(np.mean(times_ms))
    metrics[f"p99_ms_{jobs}_jobs"] = float(np.quantile(times_ms, 0.99))
    metrics[f"exact_share_{jobs}_jobs"] = exact / CASES


def _candidates(metrics: dict[str, float], name: str, cluster: Cluster, waiting: float) -> None:
    """Add to the metrics the time to choose among candidates, and what settling loops is worth."""
    jobs, seats = _placed(cluster, waiting)

    def work() -> object:
        return choose([_links(cluster, jobs, each) for each in seats])

    work()
    metrics[f"ms_{name}"] = min(_forgetful_ms(work) for _ in range(RUNS))
    links = [_links(cluster, jobs, each) for each in seats]
    settled = [found for each in links if (found := interleave(each)) is not None]
    metrics[f"links_{name}"] = sum(map(len, links)) / len(links)
    metrics[f"with_loops_{name}"] = sum(map(has_loop, links))
    metrics[f"score_{name}"] = float(np.mean([found.score for found in settled]))
    metrics[f"score_lost_to_loops_{name}"] = float(np.mean([found.graph.score - found.score for found in settled]))


def _forgetful_ms(work: Callable[[], object]) -> float:
    """Return the time that work takes when nothing is remembered."""
    compatibility.cache_clear()
    unify.cache_clear()
    footprint.cache_clear()
    return timed_ms(work)[0]


def _draw(rng: np.random.Generator, jobs: int) -> tuple[Circle, ...]:
    """Draw jobs with one or two arcs each that together ask for about what the link has."""
    made = []
    for _ in range(jobs):
        edges = np.sort(rng.random(2 * int(rng.integers(1, 3)))).reshape(-1, 2)
        up = float((edges[:, 1] - edges[:, 0]).sum())
        gbps = min(LINK_GBPS / jobs / up * float(rng.uniform(0.6, 1.4)), LINK_GBPS)
        made.append(Circle(0.2, tuple((0.2 * start, 0.2 * end, gbps) for start, end in edges.tolist())))
    return tuple(made)


def _placed(cluster: Cluster, waiting: float) -> tuple[list[Job], list[Seats]]:
    """Draw jobs for all GPUs, and candidates in which the last of them change places with each other."""
    rng = np.random.default_rng(1)
    jobs: list[Job] = []
    left = cluster.gpus
    while left:
        gpus = min(int(rng.choice(SIZES)), left)
        left -= gpus
        jobs.append(Job(id=f"j{len(jobs)}", gpus=gpus, model=str(rng.choice(MODELS)), collective="ring"))
    slots = np.repeat(np.arange(len(cluster.machines)), GPUS)
    moved = rng.choice(cluster.gpus, round(SCATTERED * cluster.gpus), replace=False)
    slots[moved] = slots[rng.permutation(moved)]
    stay = round((1.0 - waiting) * len(jobs))
    every = []
    for _ in range(CANDIDATES):
        order = [*range(stay), *(stay + rng.permutation(len(jobs) - stay)).tolist()]
        at, seats = 0, {}
        for job in order:
            seats[job] = tuple(sorted(slots[at : at + jobs[job].gpus].tolist()))
            at += jobs[job].gpus
        every.append(seats)
    return jobs, every


def _links(cluster: Cluster, jobs: list[Job], seats: Seats) -> list[SharedLink]:
    """Return the links that carry more than one job."""
    circles = {jobs[job].id: demand.circles(cluster, jobs[job], machines) for job, machines in seats.items()}
    return shared_links(circles, cluster.uplink_gbps, cluster.node_names)
