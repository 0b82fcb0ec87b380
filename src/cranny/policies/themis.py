"""Themis: GPUs on lease, auctioned to the jobs that are farthest from a fair finish.

K. Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020. The text of that paper was not
at hand; this follows its outline from memory, and what CASSINI (NSDI 2024, Sec. 4.2 and 5.1) says of it.

Symbols:

    T_sh         when a job would finish with what it gets here, from its submission
    T_id         when it would finish on its own 1/N of the cluster, N being the jobs that are there
    rho          finish-time fairness, T_sh / T_id: above 1 a job would be better off alone
    f            `fairness`: only the (1 - f) of the jobs with the highest rho take part in an auction
    S            `slowdowns`: what a bid assumes of workers on one machine, below one switch, below several

A job holds its GPUs for a lease of `lease_s`; only then it may be stopped, moved or resized. When a job comes or
ends, GPUs that are free or whose lease is over are auctioned: jobs bid 1 / rho for numbers of workers, and those
numbers win that maximise the product of all bids. What no bidder takes goes to the other jobs. Winners
keep the machines that they have if their number of workers stays, and otherwise get one machine that holds them,
or one rack, or simply free GPUs: by what CASSINI says, Themis looks no closer. All such places are candidates. The
first of them is taken, which happens to keep jobs together; a seed `ties` draws one.

Departure: the auction maximises the product greedily, the largest gain for a GPU first. A rigid job bids for all
of its workers only, so a large one may wait until enough leases end at once.

Departure: no winner pays with a part of its GPUs. Hidden payments keep bidders honest; ours are.

Departure: jobs may want certain types of GPU. No job wins more of a type than others leave of it, and a loser
whose GPUs no other job can use keeps them.

Departure: what is left over is auctioned among the other jobs, and not drawn by lot: the same answer each time.

A lease that ends is auctioned at once (`next_s`), unless no job waits and none could be resized. With a `period_s`
of the simulation, auctions are at its multiples only. Leases end one by one, as CASSINI says of its testbed (Sec.
5.2); with `epochs` all of them end together, at multiples of `lease_s`.

Departure: a job without GPUs would never end, and no product of bids could be compared: it counts as if it had
half a worker.

Departure: a job whose duration is not known is taken to run for as long again as it did, and an hour at least.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running, attained_gpu_s
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.plan import Plan
from cranny.model.validate import between, positive, yes_or_no
from cranny.policies._shared.candidates import BaseCluster, JobMachines, variations
from cranny.policies._shared.locality import drawn_by, level, nearby
from cranny.policies._shared.promises import GpuPool
from cranny.policies._shared.resize import ResizingPolicy, elastic, place_resized, plans, without_jobs
from cranny.policies._shared.waiting_arrays import WaitingArrays, WaitingColumns

HOUR_S = 3600.0
REST = 0.05  # of its service that a job which ought to be done, but was slowed down, still needs
MOST_SLOWDOWN = 1000
NOTHING = 0.5  # workers with which a job without any is taken to go on


class Bidder(NamedTuple):
    """A job in an auction."""

    job: Job
    had_gpu_s: float  # the service that it got
    ideal_s: float  # T_id

    @property
    def left_gpu_s(self) -> float:
        """The service that it still needs where its workers are on one machine; always some."""
        if self.job.duration_s is None:
            return max(self.had_gpu_s, HOUR_S * self.job.gpus)
        total = max(self.job.duration_s, 1.0) * self.job.gpus
        return max(total - self.had_gpu_s, REST * total)


class BidderArrays(NamedTuple):
    """Many jobs in an auction, (jobs,) each: the same numbers as of one `Bidder`, to the last bit."""

    gpus: Floats
    submit_s: Floats
    left_gpu_s: Floats
    ideal_s: Floats

    @classmethod
    def of(cls, jobs: WaitingColumns, share: float) -> "BidderArrays":
        """Return waiting jobs, each of which may count on its share of the cluster."""
        gpus, had, stated_s = jobs.gpus, jobs.attained_gpu_s, jobs.duration_s
        known = ~np.isnan(stated_s)
        total = np.where(known, stated_s * gpus, HOUR_S * gpus + had)
        whole = np.maximum(stated_s, 1.0) * gpus
        left = np.where(known, np.maximum(whole - had, REST * whole), np.maximum(had, HOUR_S * gpus))
        return cls(gpus, jobs.submit_s, left, np.maximum(total, 1.0) / np.minimum(share, jobs.most_gpus))

    def only(self, numbers: Ints) -> "BidderArrays":
        """Return some of the jobs."""
        return BidderArrays(*(each[numbers] for each in self))

    def rho(self, now_s: float, slowness: float | Floats) -> Floats:
        """Return T_sh / T_id; `slowness` is how long a GPU-second of service takes."""
        since_s = np.maximum(now_s - self.submit_s, 0.0)
        found: Floats = np.maximum(since_s + self.left_gpu_s * slowness, 1.0) / self.ideal_s
        return found


class Themis(ResizingPolicy):
    """Auction GPUs whose lease is over to the jobs farthest from fairness."""

    other_reason = "jobs that are farther from a fair finish go first"

    def __init__(
        self,
        *,
        lease_s: float = 600.0,
        fairness: float = 0.8,
        slowdowns: Sequence[float] = (1.0, 1.1, 1.3),
        ties: int | None = None,
        epochs: bool = False,
    ) -> None:
        self.lease_s = positive(lease_s, "themis: lease_s")
        self.fairness = between(fairness, "themis: fairness", 0, 1, below=True)
        if not isinstance(slowdowns, Sequence) or len(slowdowns) != 3:
            raise InputError(f"themis: slowdowns must be three numbers, not {slowdowns!r}")
        self.slowdowns = tuple(between(each, "themis: each of slowdowns", 1, MOST_SLOWDOWN) for each in slowdowns)
        self.epochs = yes_or_no(epochs, "themis: epochs")
        self._choose = partial(nearby, ties=drawn_by(ties, "themis: ties"))
        self._renewed_s: dict[str, float] = {}  # when jobs won again what they had
        self._waiting = WaitingArrays()

    def next_s(self, view: Snapshot) -> float:
        """Return when the next lease ends; at infinity if no other job could win what the holder gives up."""
        if not view.waiting and not any(elastic(running.submitted) for running in view.running.values()):
            return math.inf
        return min((end_s for end_s in self._lease_ends_s(view).values() if end_s > view.now_s), default=math.inf)

    def _lease_ends_s(self, view: Snapshot) -> dict[str, float]:
        """Return when the lease of each running job ends."""
        since_s = {
            job_id: max(running.started_s, self._renewed_s.get(job_id, 0.0))
            for job_id, running in view.running.items()
        }
        if self.epochs:
            return {
                job_id: (math.floor(at_s / self.lease_s) + 1) * self.lease_s for job_id, at_s in since_s.items()
            }
        return {job_id: at_s + self.lease_s for job_id, at_s in since_s.items()}

    def candidates(self, view: Snapshot, count: int) -> list[Plan]:
        """Run an auction if GPUs are available; return plans with the same winners on different machines."""
        expired = [job_id for job_id, end_s in self._lease_ends_s(view).items() if end_s <= view.now_s]
        if not view.waiting and not expired:
            return [Plan(view.version)]
        base = without_jobs(view, expired)
        running = {job_id: view.running[job_id] for job_id in expired}
        stopping = [Waiting(each.submitted, attained_gpu_s(each, view.now_s)) for each in running.values()]
        bidding = (*stopping, *view.waiting)
        won = self._auction(bidding, view, base)
        if not won and not expired:
            return [Plan(view.version)]
        sizes = {bidding[number].job.id: gpus for number, gpus in won.items()}
        named = (*stopping, *(bidding[number] for number in won))
        bidders = {each.job.id: self._bidder(view, each) for each in named}
        machines_of = place_resized(sizes, running, base, self._choose)
        losers = [job_id for job_id in expired if job_id not in machines_of]
        stopped = dict.fromkeys(losers, "its lease ended, and jobs farther from a fair finish bid more")
        for job_id in expired:
            self._renewed_s[job_id] = view.now_s
        if len(self._renewed_s) > 2 * len(view.running) + 100:  # drop the notes on jobs that are gone
            self._renewed_s = {job_id: at_s for job_id, at_s in self._renewed_s.items() if job_id in view.running}
        notes = {
            job_id: f"bid for {len(machines)} workers at rho {self._rho(bidders[job_id], len(machines), view):.2f}"
            for job_id, machines in machines_of.items()
        }
        found = variations(
            machines_of,
            BaseCluster.of(base),
            count,
            lambda _, machines: level(machines, view.cluster),
            others=_drawn(sizes, running, base, count),
        )
        return plans(found, view, base, stopped, notes)

    def _bidder(self, view: Snapshot, waiting: Waiting) -> Bidder:
        """Return a job with its T_id: all of its service on 1/N of the cluster, or on as many GPUs as it uses."""
        job = waiting.job
        most = job.most_gpus or job.gpus
        total = (
            job.duration_s * job.gpus if job.duration_s is not None else HOUR_S * job.gpus + waiting.attained_gpu_s
        )
        ideal_s = max(total, 1.0) / min(_share(view), most)
        return Bidder(job, waiting.attained_gpu_s, ideal_s)

    def _rho(self, bidder: Bidder, gpus: int, view: Snapshot) -> float:
        """Return T_sh / T_id for a number of workers."""
        since_s = max(view.now_s - bidder.job.submit_s, 0.0)
        machine, rack = largest(view.cluster)
        slowdown = self.slowdowns[0 if gpus <= machine else 1 if gpus <= rack else 2]  # S, as close as can be
        runs_s = bidder.left_gpu_s * (slowdown / gpus if gpus else 1.0 / NOTHING)
        return max(since_s + runs_s, 1.0) / bidder.ideal_s

    def _auction(self, bidding: Sequence[Waiting], view: Snapshot, base: Snapshot) -> dict[int, int]:
        """Return how many workers each winner gets: first those farthest from fairness bid, then the others.

        Of many jobs that wait, only those that fit into what is free can bid: the others only take their places in
        the order.
        """
        columns = self._waiting.columns(bidding)
        fits = np.flatnonzero(columns.least_gpus <= self._waiting.free_by_kind(base)[columns.kind])
        if not fits.size:
            return {}
        jobs = BidderArrays.of(columns, _share(view))
        rho = jobs.rho(base.now_s, 1.0 / NOTHING)
        order = np.argsort(-rho, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        visible = max(1, math.ceil(len(order) * (1.0 - self.fairness) - 1e-9))
        in_order = fits[np.argsort(place[fits])]
        pool = GpuPool(base.free.tolist())
        sizes: dict[int, int] = {}
        bids = self._all_bids(bidding, in_order, columns, jobs, view, base)
        first = int((place[in_order] < visible).sum())
        suited, kinds = self._waiting.machines_by_kind(base), columns.kind[in_order].tolist()
        every = [
            (number, suited[kind], bids[number]) for number, kind in zip(in_order.tolist(), kinds, strict=True)
        ]
        for part in (every[:first], every[first:]):
            for number, gpus in _winners(part, pool):
                sizes[number] = sizes.get(number, 0) + gpus
        return sizes

    def _all_bids(
        self,
        bidding: Sequence[Waiting],
        numbers: Ints,
        columns: WaitingColumns,
        jobs: BidderArrays,
        view: Snapshot,
        base: Snapshot,
    ) -> dict[int, list[tuple[float, int]]]:
        """Return the bids of some jobs, of all rigid ones together."""
        can_grow = columns.elastic[numbers]
        rigid = numbers[~can_grow]
        some = jobs.only(rigid)
        machine, rack = largest(base.cluster)
        slowdown = np.array(self.slowdowns)[(some.gpus > machine).astype(np.int64) + (some.gpus > rack)]
        without = some.rho(base.now_s, 1.0 / NOTHING).tolist()
        with_all = some.rho(base.now_s, slowdown / some.gpus).tolist()
        bids: dict[int, list[tuple[float, int]]] = {}
        gpus = some.gpus.astype(np.int64).tolist()
        for number, size, before, after in zip(rigid.tolist(), gpus, without, with_all, strict=True):
            now, quality = -math.log(after), -math.log(before)
            bids[number] = [(now - quality, size)] if now > quality else []
        others = numbers[can_grow].tolist()
        return bids | {number: self._bids(self._bidder(view, bidding[number]), base) for number in others}

    def _bids(self, bidder: Bidder, view: Snapshot) -> list[tuple[float, int]]:
        """Return the steps by which a job would grow: the gain in log(1 / rho), and the GPUs.

        A job does not bid for more than there are of the GPUs that can run it: it would win what it cannot use.
        """
        job, steps, held = bidder.job, [], 0
        quality = -math.log(self._rho(bidder, 0, view))
        most = min(job.most_gpus or job.gpus, view.available(job).gpus)
        for size in range(job.least_gpus or job.gpus, most + 1):
            now = -math.log(self._rho(bidder, size, view))
            if now > quality:  # not if more workers only add communication
                steps.append((now - quality, size - held))
                held, quality = size, now
        return steps


def _share(view: Snapshot) -> float:
    """Return the GPUs of 1/N of the cluster, one at least."""
    return max(view.cluster.gpus / (len(view.running) + len(view.waiting)), 1.0)


def _winners(bids: Sequence[tuple[int, int, list[tuple[float, int]]]], pool: GpuPool) -> Iterator[tuple[int, int]]:
    """Yield jobs and the GPUs that they win: the product of 1 / rho is raised, the largest gain for a GPU first.

    Bids are numbers of jobs, the machines that suit each, and its steps. Of equal gains the first job wins. What
    is left never grows, so a job that cannot afford its next step is out.
    """
    # The next step of each job.
    steps = [(-(each[0][0] / each[0][1]), place, 0) for place, (_, _, each) in enumerate(bids) if each]
    heapify(steps)
    cheapest: dict[int, int] = {}  # of all steps, by the machines that suit
    for _, machines, each in bids:
        for _, cost in each:
            cheapest[machines] = min(cost, cheapest.get(machines, cost))
    left = {machines: pool.left(machines) for machines in cheapest}
    while steps and any(left[machines] >= cost for machines, cost in cheapest.items()):
        _, place, step = heappop(steps)
        number, machines, each = bids[place]
        cost = each[step][1]
        if cost > left[machines]:
            continue
        yield number, cost
        pool.take(machines, cost)
        left = {machines: pool.left(machines) for machines in cheapest}
        if step + 1 < len(each):
            heappush(steps, (-(each[step + 1][0] / each[step + 1][1]), place, step + 1))


def _drawn(
    sizes: Mapping[str, int], running: Mapping[str, Running], base: Snapshot, count: int
) -> Iterator[JobMachines]:
    """Yield places that are drawn, in which workers may be split otherwise over machines with several GPUs."""
    drawn = partial(nearby, ties=np.random.default_rng(count))
    for _ in range(count if base.free.max() > 1 else 0):
        found = place_resized(sizes, running, base, drawn)
        if len(found) == len(sizes):
            yield found


@lru_cache(maxsize=16)
def largest(cluster: Cluster) -> tuple[int, int]:
    """Return the GPUs of the largest machine and of the largest rack."""
    sizes = [machine.gpus for machine in cluster.machines]
    return max(sizes), max(sum(sizes[first:past]) for first, past in cluster.rack_spans)
