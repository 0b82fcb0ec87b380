"""Rates in a shared network, by the book: progressive filling, linear programs, and NetPack's Algorithm 1."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from cranny.model.cluster import Cluster
from tests.reference.links import route

# What a job puts on each link for each Gbps of its rate.
Weights = Mapping[int, Fraction]


def fill(
    gbps: Sequence[Fraction], jobs: Sequence[Weights], most: Sequence[Fraction | None]
) -> list[Fraction | None]:
    """Raise all jobs together; freeze those on a link that is full and those that want no more.

    None stands for a rate without limit, of a job that uses no link.
    """
    rate: list[Fraction | None] = [None] * len(jobs)
    rising = {job for job, weights in enumerate(jobs) if weights or most[job] is not None}
    left = list(gbps)
    level = Fraction(0)
    while rising:
        flows = {
            link: sum((jobs[job].get(link, Fraction(0)) for job in rising), Fraction(0))
            for link in range(len(left))
        }
        steps = [left[link] / n for link, n in flows.items() if n]
        steps += [limit - level for job in rising if (limit := most[job]) is not None]
        step = min(steps)
        level += step
        for link, n in flows.items():
            left[link] -= step * n
        for job in list(rising):
            if level == most[job] or any(left[link] == 0 for link, weight in jobs[job].items() if weight):
                rate[job] = level
                rising.remove(job)
    return rate


def by_programs(gbps: Sequence[float], jobs: Sequence[Mapping[int, float]]) -> list[float]:
    """Return max-min fair rates by linear programs: the largest minimum, then the next, and so on."""
    from ortools.linear_solver import pywraplp

    fixed: dict[int, float] = {}
    while len(fixed) < len(jobs):
        solver = pywraplp.Solver.CreateSolver("GLOP")
        lowest = solver.NumVar(0.0, solver.infinity(), "lowest")
        rows = [solver.Constraint(-solver.infinity(), capacity) for capacity in gbps]
        at_least = {}
        for job, weights in enumerate(jobs):
            known = fixed.get(job)
            rate = solver.NumVar(known or 0.0, solver.infinity() if known is None else known, "")
            for link, weight in weights.items():
                rows[link].SetCoefficient(rate, weight)
            if known is None:
                at_least[job] = solver.Add(rate >= lowest)
        solver.Maximize(lowest)
        if solver.Solve() != solver.OPTIMAL:
            msg = "the linear program has no optimum"
            raise ValueError(msg)
        # A job whose rate has a price is at the minimum in every optimum: this is the most it can get.
        stuck = [job for job, row in at_least.items() if abs(row.dual_value()) > 1e-9]
        fixed.update(dict.fromkeys(stuck, lowest.solution_value()))
    return [fixed[job] for job in range(len(jobs))]


def could_rise(gbps: Sequence[float], jobs: Sequence[Mapping[int, float]], rate: Sequence[float]) -> list[int]:
    """Return the jobs that could rise at the cost of larger rates only: none if rates are max-min fair."""
    near = 1e-9
    load = [0.0] * len(gbps)
    for weights, own in zip(jobs, rate, strict=True):
        for link, weight in weights.items():
            load[link] += weight * own

    def holds(link: int, own: float) -> bool:
        others = (theirs for weights, theirs in zip(jobs, rate, strict=True) if link in weights)
        return load[link] >= gbps[link] * (1 - near) and own >= max(others) * (1 - near)

    return [job for job, weights in enumerate(jobs) if not any(holds(link, rate[job]) for link in weights)]


@dataclass
class Node:
    """A node of a job's aggregation hierarchy: a worker, a switch or the parameter server."""

    at: int  # node of the cluster
    links: list[int] = field(default_factory=list)  # from here to the parent
    children: "list[Node]" = field(default_factory=list)
    flows: int = 0


@dataclass(frozen=True)
class Tenant:
    """A job as Algorithm 1 sees it."""

    machines: Collection[int]
    server: int
    ina: bool | tuple[int, ...] = True  # or only in these racks
    most: Fraction | None = None


@dataclass
class Outcome:
    """What Algorithm 1 leaves."""

    rate: list[Fraction | None]
    left: list[Fraction]
    pat: dict[int, Fraction]  # by the node of the switch
    flows: list[int]  # on each link when the last job was frozen, each job's as it was frozen


def hierarchy(cluster: Cluster, job: Tenant) -> Node:
    """Return the two levels of switches from the workers to the parameter server, which is the root."""
    home = Node(cluster.parent[job.server], [job.server])
    switches = {home.at: home}
    for machine in sorted(set(job.machines) - {job.server}):
        at = cluster.parent[machine]
        if at not in switches:
            up, down = route(cluster, at, home.at)
            switches[at] = Node(at, [*up, *down])
            home.children.append(switches[at])
        switches[at].children.append(Node(machine, [machine]))
    return Node(job.server, children=[home] if home.children else [])


def below(node: Node) -> list[Node]:
    """Return all nodes below one."""
    return [each for child in node.children for each in (child, *below(child))]


def aggregates(cluster: Cluster, switch: int, job: Tenant) -> bool:
    """Say whether a switch is to aggregate for a job."""
    return job.ina if isinstance(job.ina, bool) else cluster.rack_nodes.index(switch) in job.ina


def water_filling(cluster: Cluster, jobs: Sequence[Tenant]) -> Outcome:
    """Run Algorithm 1, line by line, in exact numbers.

    Read as `child.flows` in line 22, and with two additions: a job may have aggregation off, everywhere or in some
    racks (z of Table 2), and it may have a limit of its own.
    """
    machines = len(cluster.machines)
    bw = [Fraction(gbps) if gbps != float("inf") else Fraction(0) for gbps in cluster.uplink_gbps]
    pat = {rack: Fraction(cluster.pat_gbps[rack] or 0) for rack in set(cluster.parent[:machines])}
    trees = [hierarchy(cluster, job) for job in jobs]
    rate: list[Fraction | None] = [None] * len(jobs)
    flows = [0] * len(bw)
    active = {i for i, tree in enumerate(trees) if tree.children or jobs[i].most is not None}
    level = Fraction(0)

    def update(node: Node, job: Tenant) -> None:  # lines 10-16
        for child in node.children:
            update(child, job)
        if node.at < machines:
            node.flows = 1
        else:
            merges = aggregates(cluster, node.at, job) and pat[node.at] > 0
            node.flows = 1 if merges else sum(child.flows for child in node.children)

    while active:  # line 2
        on_link = [0] * len(bw)
        on_switch = dict.fromkeys(pat, 0)
        for i in active:  # lines 3-5
            update(trees[i], jobs[i])
            for child in below(trees[i]):
                for link in child.links:
                    on_link[link] += child.flows
                if child.at >= machines and aggregates(cluster, child.at, jobs[i]):
                    on_switch[child.at] += 1
        shares = [bw[link] / n for link, n in enumerate(on_link) if n]  # line 6
        shares += [pat[switch] / n for switch, n in on_switch.items() if n and pat[switch]]  # line 7
        shares += [limit - level for i in active if (limit := jobs[i].most) is not None]
        step = min(shares)
        level += step
        for link, n in enumerate(on_link):  # lines 17-26
            bw[link] -= step * n
        for switch, n in on_switch.items():
            pat[switch] -= step * n if pat[switch] else 0
        for i in list(active):
            used = [(link, child.flows) for child in below(trees[i]) for link in child.links]
            if level == jobs[i].most or any(bw[link] == 0 for link, _ in used):
                active.remove(i)
                rate[i] = level
                for link, n in used:
                    flows[link] += n
    return Outcome(rate, bw, pat, flows)
