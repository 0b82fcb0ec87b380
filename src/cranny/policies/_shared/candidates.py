"""Candidates: other placements that are as good to the policy as its own.

CASSINI (NSDI'24), Sec. 4.2, step 1: a scheduler returns up to N placements that it rates equally. Here they
come from exchanging machines that are *alike*: as many free GPUs, of the same type, both idle or both in use, with
links of the same capacities above them. An exchange must leave what the policy counts as it is for every job: for
a placer, on how many machines its workers are, and how long they communicate without contention; for one
that weighs links, also that they get no less of them. But other jobs share the links.

The search goes from the first placement outwards, best first: the fewer jobs share links, the earlier. It ends
where none do, since nothing is better than that.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from cranny.core.protocol import Host, Placer, Policy, Slowdown, default_order
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Aggregate, Move, Plan, Shift, Start, Stop
from cranny.policies._shared.locality import crossed

# The quality of a job's machines, given its id and these: it must stay the same.
Quality = Callable[[str, tuple[int, ...]], Hashable]
# Machines of the workers of each job; before them that of its parameter server, if it has one.
JobMachines = Mapping[str, tuple[int, ...]]
ALIKE = 32  # machines at most with which one may change places; those whose links have the fewest users
TRIES = 1000  # exchanges that are looked at, at most


class BaseCluster(NamedTuple):
    """A cluster without the jobs whose machines are varied."""

    cluster: Cluster
    kinds: tuple[Hashable, ...]  # (machines,) machines of one kind are alike
    idle: tuple[bool, ...]  # (machines,)
    users: tuple[int, ...]  # (links,) other jobs
    by_links: bool = False  # whether a job may get no less of its links than before

    @classmethod
    def of(cls, view: Snapshot, *, by_links: bool = False) -> "BaseCluster":
        """Describe a view."""
        cluster = view.cluster
        users = tuple(view.link_users(link) for link in range(len(cluster.parent)))
        idle = tuple(view.is_idle(number) for number in range(len(cluster.machines)))
        kinds: list[Hashable] = []
        for number, machine in enumerate(cluster.machines):
            gbps = tuple(cluster.uplink_gbps[link] for link in cluster.paths[number])
            has = view.free_on(number), idle[number], view.is_up(number)
            kinds.append((*has, machine.gpus, machine.gpu_type, gbps))
        return cls(cluster, tuple(kinds), idle, users, by_links)

    def shares(self, machines: tuple[int, ...]) -> list[float]:
        """Return the least share that a job has of any link, and its shares of its machines' links in order.

        Other jobs are counted; the list is empty if links do not count.
        """
        links = crossed(machines, self.cluster) if self.by_links else ()
        share = {link: self.cluster.uplink_gbps[link] / (self.users[link] + 1) for link in links}
        own = sorted(share[link] for link in links if link < len(self.kinds))
        return [min(share.values()), *own] if links else []

    def contended_uses(self, machines_of: JobMachines) -> int:
        """Count, over all links, the jobs that share the link with another."""
        users = list(self.users)
        found = 0
        for machines in machines_of.values():
            for link in crossed(machines, self.cluster):
                found += users[link] > 0
                users[link] += 1
        return found

    def canonical(self, machines: tuple[int, ...], first: int = 0) -> Hashable:
        """Return the same key for machines that differ only in ones which the job has to itself.

        Its workers are from the place `first` on, and before them its parameter server.
        """
        marks = []
        for machine, gpus in Counter(machines[first:]).items():
            private = self.idle[machine] and gpus == self.cluster.machines[machine].gpus
            private = private and machine not in machines[:first]
            marks.append((self.cluster.rack_of[machine], -1 if private else machine, gpus))
        return machines[:first], tuple(sorted(marks))


def variations(
    machines_of: JobMachines,
    base: BaseCluster,
    count: int,
    quality: Quality,
    served: Collection[str] = (),
    others: Iterable[JobMachines] = (),
) -> list[JobMachines]:
    """Return up to `count` choices of machines as good as this one, which comes first.

    `others` that the policy knows are among them if they are as good, and are varied too. Ranks that are in order
    stay in order. The first machine of jobs that are `served` is that of their parameter server.
    """
    if not machines_of:
        return [machines_of]
    found: list[JobMachines] = []
    heap: list[tuple[int, int, JobMachines]] = [(-1, 0, machines_of)]
    firsts = {job: int(job in served) for job in machines_of}  # where a job's ranks begin
    canonical = cache(base.canonical)

    def canonical_all(those: JobMachines) -> tuple[Hashable, ...]:
        return tuple([canonical(machines, firsts[job]) for job, machines in those.items()])

    seen = {canonical_all(machines_of)}
    kept = {job: (quality(job, machines), base.shares(machines)) for job, machines in machines_of.items()}

    def as_good(job: str, machines: tuple[int, ...]) -> bool:
        """Say whether machines have the quality of the first ones, with as much of every link or more."""
        if quality(job, machines) != kept[job][0]:
            return False
        return all(now >= before for now, before in zip(base.shares(machines), kept[job][1], strict=True))

    in_order = {
        job: first for job, first in firsts.items() if all(a <= b for a, b in pairwise(machines_of[job][first:]))
    }

    def consider(here: JobMachines, there: JobMachines) -> None:
        """Keep other machines for later, if they are new and as good."""
        key = canonical_all(there)
        if key in seen:
            return
        seen.add(key)
        moved = [job for job, machines in here.items() if there[job] is not machines]
        if all(as_good(job, there[job]) for job in moved):
            heappush(heap, (base.contended_uses(there), len(seen), there))

    tries = 0
    while heap and len(found) < count:
        _, _, here = heappop(heap)
        found.append(here)
        if len(found) == count or not base.contended_uses(here):
            break
        if here is machines_of:
            for there in others:
                consider(here, there)
        for pairs in _exchanges(here, base):
            tries += 1
            if tries > TRIES:
                break
            consider(here, _exchanged(here, pairs, in_order))
    return found


def _exchanged(machines_of: JobMachines, pairs: Mapping[int, int], in_order: Mapping[str, int]) -> JobMachines:
    """Swap the workers of paired machines; jobs that do not change keep the same tuples.

    `in_order` has the jobs whose ranks are to stay in order, and where these begin.
    """
    found = dict(machines_of)
    for job, machines in machines_of.items():
        if not pairs.keys().isdisjoint(machines):
            moved = [pairs.get(machine, machine) for machine in machines]
            # Neighbours in rank should stay neighbours, or rings would cross racks more often than they must.
            first = in_order.get(job, len(moved))
            found[job] = (*moved[:first], *sorted(moved[first:]))
    return found


def _exchanges(machines_of: JobMachines, base: BaseCluster) -> Iterator[dict[int, int]]:
    """Yield exchanges of single machines, and of what a job has below one switch."""
    used = dict.fromkeys(machine for machines in machines_of.values() for machine in machines)
    # The machines of each kind that is used, those with the fewest users on their links first.
    alike: dict[Hashable, list[int]] = {base.kinds[machine]: [] for machine in used}
    for machine, kind in enumerate(base.kinds):
        if kind in alike:
            alike[kind].append(machine)
    paths, users = base.cluster.paths, base.users
    for group in alike.values():
        group.sort(key=lambda machine: (sum([users[link] for link in paths[machine]]), machine))
        del group[ALIKE:]
    for machine in used:
        for other in alike[base.kinds[machine]]:
            if other != machine and not (other in used and other < machine):  # that pair was yielded already
                yield {machine: other, other: machine}
    rack_of = base.cluster.rack_of
    for machines in machines_of.values():
        groups: dict[int, list[int]] = {}
        for machine in dict.fromkeys(machines):
            groups.setdefault(rack_of[machine], []).append(machine)
        for rack, group in groups.items():
            if len(group) == 1:
                continue
            racks = dict.fromkeys(rack_of[other] for other in alike[base.kinds[group[0]]])
            for target in racks:
                pairs = _matched(group, target, used, base) if target != rack else None
                if pairs is not None:
                    yield pairs


def _matched(
    group: Sequence[int], rack: int, used: Mapping[int, None], base: BaseCluster
) -> dict[int, int] | None:
    """Pair machines with alike ones of another rack, unused ones first; None if there are too few."""
    first, past = base.cluster.rack_spans[rack]
    there = [machine for machine in range(first, past) if base.cluster.rack_of[machine] == rack]
    there.sort(key=lambda machine: (machine in used, machine))
    pairs: dict[int, int] = {}
    for machine in group:
        other = next((each for each in there if base.kinds[each] == base.kinds[machine]), None)
        if other is None:
            return None
        there.remove(other)
        pairs |= {machine: other, other: machine}
    return pairs


def vary_plan(plan: Plan, view: Snapshot, count: int, *, by_links: bool = False) -> list[Plan]:
    """Return a plan, and others that start and move the same jobs on machines that are alike."""
    placements: dict[str, Placement] = {}
    jobs: dict[str, Job] = {}  # as they were submitted
    running = view.running
    for action in plan.actions:
        if isinstance(action, Start | Move) and action.placement.gpus is None and not action.placement.spare:
            placements[action.job_id] = action.placement
            jobs[action.job_id] = action.job if isinstance(action, Start) else running[action.job_id].submitted
    if not placements or count <= 1:
        return [plan]
    without = view
    for action in plan.actions:
        if isinstance(action, Stop | Move):
            without = without.without(action.job_id)
    # A parameter server moves with the machine that it is on.
    machines_of = {
        job_id: placement.machines if placement.server is None else (placement.server, *placement.machines)
        for job_id, placement in placements.items()
    }

    def quality(job_id: str, machines: tuple[int, ...]) -> Hashable:
        """Return on how many machines workers are, and how long they communicate without contention.

        Below how many switches they are does not count: no policy that places by machines and links asks for it.
        """
        placement = placements[job_id]
        server = None if placement.server is None else machines[0]
        ranks = machines[-len(placement.machines) :]
        job = as_trained(jobs[job_id], len(ranks))
        cost = communication(view.cluster, job, ranks, server, placement.aggregate)
        return len(set(machines)), round(cost.comm_s, 12)

    served = {job_id for job_id, placement in placements.items() if placement.server is not None}
    found = variations(machines_of, BaseCluster.of(without, by_links=by_links), count, quality, served)
    return [plan, *[_with(plan, jobs, each, view) for each in found[1:]]]


def as_trained(job: Job, gpus: int) -> Job:
    """Return a job as it trains with so many workers."""
    return job if gpus == job.gpus else job.resized(gpus, float(gpus))


def _with(plan: Plan, jobs: Mapping[str, Job], machines_of: JobMachines, view: Snapshot) -> Plan:
    """Return a plan with other machines."""
    actions: list[Action] = []
    for action in plan.actions:
        if isinstance(action, Stop | Shift | Aggregate) or action.job_id not in machines_of:
            actions.append(action)
            continue
        machines, old = machines_of[action.job_id], action.placement
        server, ranks = None if old.server is None else machines[0], machines[-len(old.machines) :]
        made = view.placement(as_trained(jobs[action.job_id], len(ranks)), ranks)
        placement = Placement(ranks, (), None, made.rationale, server, old.aggregate)
        actions.append(action._replace(placement=placement))
    return Plan(plan.version, tuple(actions))


class PlanVariations:
    """A policy that makes one plan, as a host: its candidates are variations of that plan.

    Departure: variations keep what placers count (free GPUs, idle machines, machines of a job, its time to
    communicate alone), not what is left of links. With those of a policy that plans itself, and may weigh links, a
    job's share of its most crowded link is no smaller, nor are those of its machines' links: what NetPack's Eq. 1
    counts.
    """

    def __init__(self, policy: Policy, placer: Placer, *, by_links: bool) -> None:
        self.policy = policy
        self.order: str = default_order(policy)
        self.key, self.plan, self.why_wait, self.place = policy.key, policy.plan, policy.why_wait, placer.place
        self._by_links = by_links

    def candidates(self, view: Snapshot, count: int) -> list[Plan]:
        """Return the plan of the policy, and variations of it."""
        return vary_plan(self.policy.plan(view), view, count, by_links=self._by_links)


def host_of(policy: Placer, order: str | None = None, slowdown: Slowdown = isolated) -> Host:
    """Turn a policy into one that gives candidates; one that only places jobs gets a queue in this order.

    A policy that plans itself does so in its own order only; in another it is used as a placer.
    """
    own = order in (None, default_order(policy))
    if own and isinstance(policy, Host):
        return policy
    if own and isinstance(policy, Policy):
        return PlanVariations(policy, policy, by_links=True)
    return PlanVariations(QueuePolicy(policy, order or default_order(policy), slowdown), policy, by_links=False)
