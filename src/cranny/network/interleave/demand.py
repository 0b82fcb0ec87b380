"""From a job where it is placed to its circle on each link that it crosses.

CASSINI (NSDI'24) measures circles with port counters; we derive them from a model profile, a placement and the
links. The shapes follow its section 2.1 and Fig. 1:

- data parallel: nothing in the forward pass; each gradient bucket is reduced as soon as it is ready and the one
  before it is done, so that the up phase begins within the backward pass;
- tensor parallel: activations are reduced layer by layer all through the forward and the backward pass;
- pipeline parallel: a peak after each minibatch of the forward and of the backward pass, and the gradients of
  embeddings that the first stage and the last share at the end;
- partitioned embeddings (DLRM): vectors go from all to all within the forward pass, and their gradients back
  within the backward pass;
- hybrid: these together, with the gradients reduced after the backward pass.

What a link carries while a job communicates is the mean over that phase of the collective, in its busier
direction: what `core/traffic.py` computes. Communication of tensor and pipeline parallelism adds to the iteration;
gradients add to it only as far as they do not hide behind the backward pass.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cranny.core.traffic import BITS_PER_BYTE, GIGA, SILENT, communication, footprint
from cranny.model.circle import Arc, Circle
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Aggregation
from cranny.model.profile import ModelProfile
from cranny.model.validate import whole

MINIBATCHES = 3  # of a pipeline, as in Fig. 1(b)
# A backward pass takes about twice as long as a forward pass; for profiles that do not tell them apart.
FORWARD_SHARE = 1 / 3


class CommunicationPart(NamedTuple):
    """One kind of a job's communication in an iteration: how long it takes, and what it puts on each link."""

    seconds: float
    gigabits: dict[int, float]


NOTHING = CommunicationPart(0.0, {})


class DemandInterval(NamedTuple):
    """A stretch of an iteration during which the job's demand of each link stays the same."""

    start_s: float
    end_s: float
    gbps: dict[int, float]


def circles(
    cluster: Cluster,
    job: Job,
    machines: Sequence[int],
    server: int | None = None,
    *,
    aggregate: Aggregation = True,
    minibatches: int = MINIBATCHES,
) -> dict[int, Circle]:
    """Return the circle of a job on each link that it crosses, given the machine of each rank.

    All of them have the iteration time that the job has with the links to itself. `server` and `aggregate` are
    those of a placement of a job whose collective is `ina`.
    """
    ranks_on = tuple(machines)
    if job.tp == job.pp == 1 and not job.profile.exchanged_bytes:
        sent = communication(cluster, job, ranks_on, server, aggregate)
        if sent is SILENT:
            return {}
        # Mean rates over an iteration in which all communication comes after the computing.
        while_s = job.profile.iteration_s + sent.comm_s
        gradients = CommunicationPart(sent.comm_s, {link: gbps * while_s for link, gbps in sent.link_gbps.items()})
        return _rolled(*_data_parallel(job.profile, gradients))
    count = whole(minibatches, "minibatches", most=1000)
    _, links, costs, _ = footprint(cluster, job, ranks_on)
    found = []  # what replicas send, and shards and stages, or all to all
    for cost, k_bytes in costs:
        moved = {
            link: share * k_bytes * BITS_PER_BYTE / GIGA
            for link, share in zip(links, cost.link_share, strict=True)
            if share * k_bytes
        }
        found.append(CommunicationPart(cost.comm_s * k_bytes, moved))
    if job.tp == job.pp == 1:
        return _rolled(*_partitioned(job.profile, *found))
    return _rolled(*_hybrid(job.profile, *found, minibatches=count))


def passes_s(profile: ModelProfile) -> tuple[float, float, float]:
    """Return how long the forward pass, the backward pass and the rest of an iteration take."""
    forward, backward = profile.forward_ms / 1e3, profile.backward_ms / 1e3
    if not forward or not backward:
        forward = profile.iteration_s * FORWARD_SHARE
        return forward, profile.iteration_s - forward, 0.0
    return forward, backward, max(profile.iteration_s - forward - backward, 0.0)


def _data_parallel(profile: ModelProfile, gradients: CommunicationPart) -> tuple[float, list[DemandInterval]]:
    """Reduce buckets one after the other, each once it is ready; then the optimizer steps."""
    forward_s, backward_s, rest_s = passes_s(profile)
    buckets = profile.gradient_buckets or (((forward_s + backward_s) * 1e3, 1),)
    total = sum(size for _, size in buckets)
    rate = _rate(gradients, gradients.seconds)
    intervals: list[DemandInterval] = []
    done_s = 0.0
    for ready_ms, size in buckets:
        start_s = max(ready_ms / 1e3, done_s)
        done_s = start_s + gradients.seconds * size / total
        if intervals and start_s == intervals[-1].end_s:
            intervals[-1] = intervals[-1]._replace(end_s=done_s)
        else:
            intervals.append(DemandInterval(start_s, done_s, rate))
    return max(forward_s + backward_s, done_s) + rest_s, intervals


def _hybrid(
    profile: ModelProfile,
    reduced: CommunicationPart,
    shards: CommunicationPart,
    stages: CommunicationPart,
    tied: CommunicationPart = NOTHING,
    *,
    minibatches: int,
) -> tuple[float, list[DemandInterval]]:
    """Compute minibatch by minibatch, forward and then backward, and hand on after each; then reduce gradients."""
    forward_s, backward_s, rest_s = passes_s(profile)
    course = _Course()
    count = minibatches if stages.seconds else 1  # without stages there is nothing to hand on
    handed_s = stages.seconds / (2 * count)
    for compute_s in (forward_s, backward_s):
        # Reductions between shards come layer by layer, too fine to tell apart: half of them in either pass.
        pass_s = compute_s + shards.seconds / 2
        for _ in range(count):
            course.spend(pass_s / count, _rate(shards, 2 * pass_s))
            course.spend(handed_s, _rate(stages, stages.seconds))
    for part in (reduced, tied):
        course.spend(part.seconds, _rate(part, part.seconds))
    return course.now_s + rest_s, course.intervals


def _partitioned(
    profile: ModelProfile, reduced: CommunicationPart, exchanged: CommunicationPart
) -> tuple[float, list[DemandInterval]]:
    """Exchange vectors halfway through either pass, when half of it is computed; then reduce gradients."""
    forward_s, backward_s, rest_s = passes_s(profile)
    course = _Course()
    for compute_s in (forward_s, backward_s):
        course.spend(compute_s / 2, {})
        course.spend(exchanged.seconds / 2, _rate(exchanged, exchanged.seconds))
        course.spend(compute_s / 2, {})
    course.spend(reduced.seconds, _rate(reduced, reduced.seconds))
    return course.now_s + rest_s, course.intervals


class _Course:
    """An iteration, one part after the other."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.intervals: list[DemandInterval] = []

    def spend(self, seconds: float, gbps: dict[int, float]) -> None:
        """Let links carry so much for some time."""
        if seconds > 0:
            self.intervals.append(DemandInterval(self.now_s, self.now_s + seconds, gbps))
            self.now_s += seconds


def _rate(part: CommunicationPart, seconds: float) -> dict[int, float]:
    """Return what each link carries when a part is sent evenly over some seconds."""
    return {link: gigabits / seconds for link, gigabits in part.gigabits.items()} if seconds > 0 else {}


def _rolled(iteration_s: float, intervals: Sequence[DemandInterval]) -> dict[int, Circle]:
    """Roll the intervals of an iteration into a circle for each link; equal neighbours become one arc."""
    arcs: dict[int, list[Arc]] = {}
    for start_s, end_s, rates in intervals:
        for link, gbps in rates.items():
            on = arcs.setdefault(link, [])
            if on and on[-1][1:] == (start_s, gbps):
                on[-1] = (on[-1][0], end_s, gbps)
            elif end_s > start_s:
                on.append((start_s, end_s, gbps))
    made: dict[tuple[Arc, ...], Circle] = {}  # many links of a job look the same: one circle for all of these
    found = {}
    for link, on in sorted(arcs.items()):
        shape = tuple(on)
        if shape not in made:
            made[shape] = Circle(iteration_s, shape)
        found[link] = made[shape]
    return found
