"""What running jobs stream, and their max-min fair rates, kept up to date while jobs come and go."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np

from cranny.core.flows import Flows, fixed, merged_flows, parameter_server
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import BITS_PER_BYTE, GIGA, footprint
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.steady.link_arrays import CHANGED, FREE_USE, NONE, RateArrays

FIRST_JOBS, FIRST_USES = 64, 512  # space at first
TIDY = 1_000  # jobs that may come before uses are put in order again


class RatesWithOneMore(NamedTuple):
    """What one job more would change: its own rate, and which other jobs would have which rates, (jobs,)."""

    own_gbps: float
    others: Ints
    rates_gbps: Floats


class Rates:
    """The steady state: what every job streams, and what that leaves of links and switches.

    Jobs are known by the small whole numbers that `add` returns; those of removed jobs are given out again.
    """

    def __init__(self, link_gbps: Sequence[float], pat_gbps: Sequence[float] = ()) -> None:
        from cranny.network.steady import max_min_kernel

        self._kernel: ModuleType = max_min_kernel
        self._links = len(link_gbps)
        self._free: list[int] = []  # numbers for jobs
        self._uses_left = 0
        self._untidy = 0  # jobs that were added since uses were last in order
        self._uses: dict[int, int] = {}  # of each job that is here
        self._carried: tuple[Floats, Floats] | None = None  # until a job comes or goes
        self._net = RateArrays.empty(self._links, [*link_gbps, *pat_gbps])

    @classmethod
    def of(cls, cluster: Cluster) -> "Rates":
        """Return the network of a cluster without jobs; its racks' switches aggregate up to their PAT."""
        return cls(cluster.uplink_gbps, [cluster.pat_gbps[rack] or 0.0 for rack in cluster.rack_nodes])

    def add(self, flows: Flows, most_gbps: float = math.inf) -> int:
        """Add a job and update the rates; return its number."""
        job = self._reserve(flows)
        if not self._kernel.add(self._net, job, most_gbps, flows):
            self._solve()
        return job

    def add_all(self, jobs: Iterable[Flows], most_gbps: float | Sequence[float] = math.inf) -> list[int]:
        """Add many jobs at once, which is faster than one by one; `most_gbps` is of all or of each."""
        jobs = list(jobs)
        numbers = []
        for flows, most in zip(jobs, np.broadcast_to(most_gbps, len(jobs)).tolist(), strict=True):
            numbers.append(self._reserve(flows))
            self._kernel.put(self._net, numbers[-1], most, flows)
        self._tidy()
        self.solve()
        return numbers

    def remove(self, job: int) -> None:
        """Remove a job and update the rates."""
        self._carried = None
        self._uses_left += self._uses.pop(job)
        self._free.append(job)
        if not self._kernel.remove(self._net, job):
            self._solve()

    def attempt(self, flows: Flows, most_gbps: float) -> RatesWithOneMore:
        """Return what one job more would change; nothing does."""
        job = self._reserve(flows)
        others, rates = np.empty(len(self._net.jobs), np.int64), np.empty(len(self._net.jobs))
        count, own_gbps, settled = self._kernel.attempt(self._net, job, most_gbps, flows, others, rates)
        if count == NONE:
            self._solve()
            own_gbps, changed = self.rate_gbps(job), self.changed()
            others = changed[changed != job]
            rates = self.rates_gbps(others)
            self.remove(job)
            return RatesWithOneMore(own_gbps, others, rates)
        self._uses_left += self._uses.pop(job)
        self._free.append(job)
        if not settled:
            self._solve()
        return RatesWithOneMore(own_gbps, others[:count], rates[:count])

    def solve(self) -> None:
        """Compute all rates from scratch."""
        self._carried = None
        self._kernel.forget_changes(self._net)
        self._solve()

    def _solve(self) -> None:
        self._kernel.solve(self._net, np.array(list(self._uses), dtype=np.int64))

    def rate_gbps(self, job: int) -> float:
        """Return the rate of a job; infinite if it uses no link and nothing else limits it."""
        return float(self._net.jobs["rate"][job])

    def rates_gbps(self, jobs: Ints) -> Floats:
        """Return the rates of several jobs, (jobs,)."""
        return np.asarray(self._net.jobs["rate"][jobs])

    def bottleneck(self, job: int) -> int | None:
        """Return the full link that holds a job at its rate; None if no link does."""
        link = int(self._net.jobs["held_by"][job])
        return None if link == NONE else link

    def changed(self) -> Ints:
        """Return the jobs whose rate the last `add` or `remove` changed, in no order."""
        net = self._net
        jobs = net.changed[: net.at[CHANGED]]
        return np.asarray(jobs[net.jobs["rate"][jobs] != net.jobs["was"][jobs]])

    def left_gbps(self) -> tuple[Floats, Floats]:
        """Return what is left of each link, (links,), and of the PAT of each rack's switch, (racks,)."""
        left = np.maximum(0.0, self._net.resources["gbps"] - self.carried()[0])  # full is full, despite rounding
        return left[: self._links], left[self._links :]

    def flows(self) -> tuple[Floats, Floats]:
        """Return the flows on each link, (links,), and the jobs that each rack's switch aggregates, (racks,).

        Jobs that a switch would aggregate with more memory count, too.
        """
        flows = self.carried()[1]
        return flows[: self._links], flows[self._links :]

    def carried(self) -> tuple[Floats, Floats]:
        """Return the load of each link and then of each rack's switch, (links + racks,), and the flows there."""
        if self._carried is None:
            load, flows = np.zeros((2, len(self._net.resources)))
            self._kernel.carried(self._net, load, flows)
            # What passes a switch after its memory is used up takes none.
            load[self._links :] = np.minimum(load[self._links :], self._net.resources["gbps"][self._links :])
            self._carried = load, flows
        return self._carried

    def _reserve(self, flows: Flows) -> int:
        """Find a number and free uses for a job."""
        self._carried = None
        count = len(flows.resource)
        if not self._free or self._uses_left < count:
            self._grow(count)
        self._untidy += 1
        if self._untidy > TIDY + len(self._uses) // 4:
            self._tidy()
        job = self._free.pop()
        self._uses[job] = count
        self._uses_left -= count
        return job

    def _grow(self, uses: int) -> None:
        """Grow the arrays for at least one more job with so many uses."""
        net = self._net
        jobs = len(net.jobs)
        more_jobs = 0 if self._free else max(FIRST_JOBS, jobs // 2)
        more_uses = 0 if self._uses_left >= uses else max(FIRST_USES, uses, len(net.uses) // 2)
        fresh = np.zeros(more_uses, net.uses.dtype)
        fresh["job"] = NONE
        self._net = net._replace(
            jobs=np.concatenate([net.jobs, np.zeros(more_jobs, net.jobs.dtype)]),
            changed=np.concatenate([net.changed, np.zeros(more_jobs, np.int64)]),
            uses=np.concatenate([net.uses, fresh]),
        )
        self._free += range(jobs + more_jobs - 1, jobs - 1, -1)
        self._uses_left += more_uses
        self._tidy()

    def _tidy(self) -> None:
        """Put uses by the same job side by side, where they are found without jumping about in memory."""
        net = self._net
        live = np.flatnonzero(net.uses["job"] != NONE)
        order = live[np.argsort(net.uses["job"][live], kind="stable")]
        now_at = np.full(len(net.uses) + 1, NONE)  # (uses + 1,) the last stands for NONE
        now_at[order] = np.arange(len(order))
        uses = net.uses[order]
        for records, place in (
            (uses, "next_of"),
            (uses, "next_on"),
            (uses, "last_on"),
            (net.jobs, "first_of"),
            (net.resources, "first_use"),
        ):
            records[place] = now_at[records[place]]
        net.uses[: len(order)] = uses
        free = net.uses[len(order) :]
        free["job"] = NONE
        free["next_of"] = np.arange(len(order) + 1, len(net.uses) + 1)
        free["next_of"][-1:] = NONE
        net.at[FREE_USE] = len(order) if len(free) else NONE
        self._untidy = 0


class Served(NamedTuple):
    """A job that sends to a parameter server over links, and the flows that come in at racks' switches."""

    placement: Placement
    merged: Counter[int]


class RateEstimate:
    """The rates of the jobs that a view shows, kept up to date from view to view."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rates = Rates.of(cluster)
        self.served: dict[str, Served] = {}
        self._placements: dict[str, Placement] = {}  # of all jobs
        self._numbers: dict[str, int] = {}  # among the rates, of those that use links

    def follow(self, view: Snapshot) -> None:
        """Add the jobs that run now, and remove those that do not."""
        running, known = view.all_running(), self._placements
        for job_id in [job_id for job_id in known if job_id not in running]:
            self.remove(job_id)
        for each in [each for job_id, each in running.items() if known.get(job_id) is not each.placement]:
            job, placement = each.job, each.placement
            if known.get(job.id) != placement:
                self.add(job, placement)
                continue
            known[job.id] = placement  # which has another rationale
            if job.id in self.served:
                self.served[job.id] = self.served[job.id]._replace(placement=placement)

    def add(self, job: Job, placement: Placement) -> None:
        """Add a job as it is placed, in place of how it was before."""
        if job.id in self._placements:
            self.remove(job.id)
        self._placements[job.id] = placement
        if placement.server is not None or len(set(placement.machines)) > 1:
            self._numbers[job.id] = self.rates.add(stream(self.cluster, job, placement).flows)
            if job.collective == "ina":
                self.served[job.id] = Served(
                    placement, merged_flows(self.cluster, placement.machines, _server(placement))
                )

    def remove(self, job_id: str) -> None:
        """Remove a job."""
        del self._placements[job_id]
        self.served.pop(job_id, None)
        if job_id in self._numbers:
            self.rates.remove(self._numbers.pop(job_id))

    def rate_gbps(self, job_id: str) -> float:
        """Return the rate of a job; 0 if it uses no links."""
        number = self._numbers.get(job_id)
        return 0.0 if number is None else self.rates.rate_gbps(number)


class Stream(NamedTuple):
    """The flows of a job, and the gigabits that each iteration moves at the job's rate."""

    flows: Flows
    gigabits: float


def stream(cluster: Cluster, job: Job, placement: Placement) -> Stream:
    """Return what a job streams when it is placed so; the rate of a collective is that on its busiest link."""
    machines = placement.machines
    if job.collective == "ina":
        flows = parameter_server(cluster, set(machines), _server(placement), ina=placement.aggregate)
        return Stream(flows, job.profile.grad_bytes * BITS_PER_BYTE / GIGA)
    found = footprint(cluster, job, machines)
    moved = found.moved_bytes
    busiest = max(moved, default=0.0)
    shares = {link: sent / busiest for link, sent in zip(found.links, moved, strict=True)} if busiest else {}
    return Stream(fixed(shares), busiest * BITS_PER_BYTE / GIGA)


def _server(placement: Placement) -> int:
    """Return the machine of the parameter server."""
    return placement.machines[0] if placement.server is None else placement.server
