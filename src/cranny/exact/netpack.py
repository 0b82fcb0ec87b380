"""NetPack's placement problem solved to the optimum: the reference for the policy `netpack` on small cases.

B. Zhao et al., "Training Job Placement in Clusters with Statistical In-Network Aggregation", ASPLOS 2024, Sec.
5.1, Table 3: a batch of jobs is placed at once, and rates are given out centrally.

Symbols, as in Table 2 of the paper; j is a job, i and k are machines, r is a rack:

    g, d       GPUs and bits of the gradient         w[i]    GPUs of the job on machine i
    G[i]       free GPUs of machine i                x[i]    whether the job has workers on machine i
    C[i]       capacity of the link of machine i     y[i]    whether its parameter server is on machine i
    A[r]       PAT of the switch of rack r           z[r]    whether the switch of rack r aggregates for the job
    v = a + b  rate: aggregated and not

Minimised is the sum of d / v over the jobs with a parameter server: seconds of communication in an iteration. A
job on one machine needs no server, and by (7) has no rate and no time. A second server would only add load and
time, so there is at most one. By (8) one rack with z = 1 is enough for any a, and by (4) another costs more; so
there is at most one.

The core is one big switch, as in the table: links of racks have no limit. With such limits no solution is
better, so the optimum is a bound for oversubscribed networks too.

Departure: (3) lets workers beside the server send over their machine's link, and the server get it over the
same link; in Sec. 4 they use no link. We do not count them: x[i] (1 - y[i]) v + y[i] (a + sum of x[k] b over k
other than i).

Departure: (8) would let any switch aggregate; we ask for a rack where the job has workers or its server.

So read, the table allows all that the steady state of `network.steady` could give. There each switch merges up to
its own share of the job's rate; what they save together on the server's link, the one with the largest share
could save alone. `printed=True` takes back both departures; then the steady state may be better than the
optimum.

How it becomes linear: every product is of yes-or-no variables and one rate, and gets a variable of its own. As
a job has a server exactly when it has a rate, products with y add up to the rate: sum of (v y[i]) = v, where (v
y[i]) <= C[i] y[i]. Those with x are at least v - V (1 - x[i]), V being the fastest link. d / v is convex, and
at least what its tangents are, d (2 y / u - v / u^2) at rates u, y being the sum of y[i]; tangents are added
until they meet the curve. Some rows say nothing new, but make the search short: a job needs so many machines at
least, times each rate; a server's link carries at least v, and at most C[i] y[i] for one job; and machines that
are alike are used in order.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from cranny.core.snapshot import Snapshot
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.exact.max_min import check_batch, gpus_for
from cranny.exact.milp import Floats, MilpModel, Term
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import positive, whole

GAP = 1e-6  # between the optimum and its bound, as a share; rows are kept to 1e-9
FIRST_TANGENTS = 16  # at V, V/2, V/3, ...: where a link is shared evenly
MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class NetPackOptimum:
    """The best placements of a batch of jobs, their rates, and what they cost."""

    placements: tuple[Placement, ...]
    rate_gbps: tuple[float, ...]  # v; infinite for a job that sends nothing
    merged_gbps: tuple[float, ...]  # a
    comm_s: float  # the sum of d / v
    bound_s: float  # no solution is below
    proven: bool  # whether the two are the same, but for a share of `GAP`


class Table3:
    """Solve Table 3 for a batch of jobs with SCIP; `time_limit_s` is for each of a few searches."""

    def __init__(
        self, *, printed: bool = False, max_machines: int = 16, max_jobs: int = 6, time_limit_s: float = 60.0
    ) -> None:
        self.printed = printed
        self.max_machines = whole(max_machines, "table 3: max_machines")
        self.max_jobs = whole(max_jobs, "table 3: max_jobs")
        self.time_limit_s = positive(time_limit_s, "table 3: time_limit_s")

    def solve(
        self, jobs: Sequence[Job], view: Snapshot, placements: Sequence[Placement] | None = None
    ) -> NetPackOptimum | None:
        """Place jobs and give out rates; None if they do not fit together.

        With `placements` workers and servers stay there, and only rates and switches are chosen.
        """
        check_batch(jobs, view)
        machines = len(view.cluster.machines)
        if machines > self.max_machines or len(jobs) > self.max_jobs:
            raise CrannyError(
                f"table 3: {len(jobs)} jobs on {machines} machines; the limits are {self.max_jobs} jobs (max_jobs)"
                f" and {self.max_machines} machines (max_machines)"
            )
        model = _Model(jobs, view, printed=self.printed)
        if placements is None:
            model.break_symmetry()
        held = {} if placements is None else model.held(placements)
        best: Floats | None = None
        value, bound = math.inf, 0.0
        for _ in range(MOST_ROUNDS):
            answer = model.program.solve(held, self.time_limit_s)
            if answer is None:
                return None
            bound = max(bound, answer.bound)
            if answer.values is not None:
                tried = self._best_rates(model, model.choices(answer.values))
                if model.value(tried) < value:
                    best, value = tried, model.value(tried)
            if answer.stopped or value - bound <= GAP * value:
                break
        if best is None:
            raise CrannyError(f"table 3: nothing found within {self.time_limit_s:g} s; raise time_limit_s")
        return model.optimum(best, bound)

    @staticmethod
    def _best_rates(model: "_Model", chosen: Mapping[int, float]) -> Floats:
        """Return the solution with the best rates for given w, x, y and z; leave tangents there."""
        best: Floats | None = None
        value = math.inf
        for _ in range(MOST_ROUNDS):
            answer = model.program.solve(chosen)
            if answer is None or answer.values is None:
                raise CrannyError("table 3: SCIP lost a solution that it had found")
            if model.value(answer.values) < value:
                best, value = answer.values, model.value(answer.values)
            if value - answer.bound <= GAP / 4 * value:
                break
            model.add_tangents(answer.values)
        if best is None:
            raise CrannyError("table 3: a job that sends got no rate")
        return best


class _Variables:
    """The variables of a job; see the module for the symbols. Lists are by machine or rack."""

    def __init__(self, program: MilpModel, gpus: Sequence[int], up: Sequence[bool], racks: int) -> None:
        each_machine, each_rack = [1.0] * len(gpus), [1.0] * racks
        self.w = program.variables(gpus, whole=True)
        self.x = program.variables([min(1, most) for most in gpus], whole=True)
        self.y = program.variables(map(float, up), whole=True)
        self.z = program.variables(each_rack, whole=True)
        self.v, self.a = program.variables([1.0, 1.0])
        self.spans = program.variable(1.0)  # sum of y
        self.seconds = program.variable(cost=1.0)  # at least d / v
        self.vx, self.bx = program.variables(each_machine), program.variables(each_machine)
        self.vy, self.ay = program.variables(each_machine), program.variables(each_machine)
        self.vxy = program.variables(each_machine)
        self.bxy = [program.variables(each_machine) for _ in gpus]  # y of the first machine, x of the second
        self.az = program.variables(each_rack)


class _Model:
    """Table 3 as a program; rates are shares of V, so that V = 1, and times of the largest d over V."""

    def __init__(self, jobs: Sequence[Job], view: Snapshot, *, printed: bool) -> None:
        cluster = view.cluster
        self.jobs, self.view, self.printed = jobs, view, printed
        self.machines = range(len(cluster.machines))
        self.racks = range(len(cluster.rack_names))
        self.rack_of = cluster.rack_of
        gbps = cluster.uplink_gbps[: len(cluster.machines)]
        self.unit_gbps = max(gbps)
        self.capacity = [each / self.unit_gbps for each in gbps]  # C
        self.pat = [(cluster.pat_gbps[rack] or 0.0) / self.unit_gbps for rack in cluster.rack_nodes]  # A
        gigabits = [job.profile.grad_bytes * BITS_PER_BYTE / GIGA for job in jobs]
        self.unit_s = max(gigabits) / self.unit_gbps
        self.d = [each / max(gigabits) for each in gigabits]
        self.program = MilpModel()
        up = [view.is_up(i) for i in self.machines]
        self.of = [_Variables(self.program, gpus_for(job, view), up, len(self.racks)) for job in jobs]
        for job, own in zip(jobs, self.of, strict=True):
            self._workers(job, own)
            self._server(job, own)
            self._switch(own)
        self._capacities()
        self.slowest = 1.0 / FIRST_TANGENTS  # rate with a tangent
        for share in range(1, FIRST_TANGENTS + 1):
            for index in range(len(jobs)):
                self._tangent(index, 1.0 / share)

    def _workers(self, job: Job, own: _Variables) -> None:
        """Place workers, (2), (5), (6); and multiply x by rates."""
        add, free, g = self.program.add, gpus_for(job, self.view), job.gpus
        add([(w, 1.0) for w in own.w], g, g)  # (2)
        add([*_sum(own.y), (own.spans, -1.0)], 0.0, 0.0)
        add([(own.v, 1.0), (own.spans, -1.0)], most=0.0)  # (7)
        add([(own.a, 1.0), (own.v, -1.0)], most=0.0)  # b >= 0
        for i in self.machines:
            w, x, vx, bx = own.w[i], own.x[i], own.vx[i], own.bx[i]
            add([(w, 1.0), (x, -float(free[i]))], most=0.0)  # (5)
            add([(w, 1.0), (x, -1.0)], least=0.0)
            if g > 1:
                add([(x, g), (w, -1.0), (own.spans, 1.0 - g)], most=0.0)  # (6): some workers here, but not all
            add([(vx, 1.0), (own.v, -1.0), (x, -1.0)], least=-1.0)
            add([(vx, 1.0), (x, -self.capacity[i])], most=0.0)
            add([(bx, 1.0), (own.v, -1.0), (own.a, 1.0), (x, -1.0)], least=-1.0)
            add([(vx, 1.0), (bx, -1.0)], least=0.0)
        fewest = _fewest(g, free)
        add(_sum(own.x), least=fewest)
        add([*_sum(own.vx), (own.v, -fewest)], least=0.0)
        add([*_sum(own.bx), (own.v, -fewest), (own.a, fewest)], least=0.0)
        if fewest > 1:
            add(_sum(own.y), least=1.0)

    def _server(self, job: Job, own: _Variables) -> None:
        """Multiply y by rates."""
        add, free, g = self.program.add, gpus_for(job, self.view), job.gpus
        add([*_sum(own.vy), (own.v, -1.0)], 0.0, 0.0)
        add([*_sum(own.ay), (own.a, -1.0)], 0.0, 0.0)
        for i in self.machines:
            y, vy, ay, bxy = own.y[i], own.vy[i], own.ay[i], own.bxy[i]
            add([(vy, 1.0), (y, -self.capacity[i])], most=0.0)
            add([(vy, 1.0), (ay, -1.0)], least=0.0)
            add([(own.vxy[i], 1.0), (vy, -1.0)], most=0.0)
            add([(own.vxy[i], 1.0), (own.vx[i], -1.0)], most=0.0)
            add([*_sum([row[i] for row in own.bxy]), (own.bx[i], -1.0)], 0.0, 0.0)
            for k in self.machines:
                add([(bxy[k], 1.0), (vy, -1.0), (ay, 1.0)], most=0.0)
            others = [k for k in self.machines if k != i]
            fewest = _fewest(g - free[i], [free[k] for k in others])
            add([*_sum([bxy[k] for k in others]), (vy, -fewest), (ay, fewest)], least=0.0)
            add([*self._received(own, i), (vy, -1.0)], least=0.0)
            add([*self._received(own, i), (y, -self.capacity[i])], most=0.0)

    def _switch(self, own: _Variables) -> None:
        """Let at most one switch aggregate, (8); and multiply z by a."""
        add = self.program.add
        add(_sum(own.z), most=1.0)
        add([*_sum(own.az), (own.a, -1.0)], 0.0, 0.0)
        for r in self.racks:
            add([(own.az[r], 1.0), (own.z[r], -min(1.0, self.pat[r]))], most=0.0)
            if not self.printed:
                here = [each[i] for each in (own.x, own.y) for i in self.machines if self.rack_of[i] == r]
                add([(own.z[r], -1.0), *_sum(here)], 0.0)

    def _received(self, own: _Variables, i: int) -> list[Term]:
        """Return what a job's server on machine i gets: y (a + sum of x b)."""
        return [(own.ay[i], 1.0), *((own.bxy[i][k], 1.0) for k in self.machines if k != i or self.printed)]

    def _capacities(self) -> None:
        """Limit GPUs, (1), links, (3), and switches, (4)."""
        add = self.program.add
        for i in self.machines:
            add([(own.w[i], 1.0) for own in self.of], most=self.view.free_on(i))
            load: list[Term] = []
            for own in self.of:
                load += [(own.vx[i], 1.0), *self._received(own, i)]
                if not self.printed:
                    load.append((own.vxy[i], -1.0))
            add(load, most=self.capacity[i])
        for r in self.racks:
            add([(own.az[r], 1.0) for own in self.of], most=self.pat[r])

    def break_symmetry(self) -> None:
        """Exclude placements that only swap machines or racks that are alike."""
        kinds = [
            (self.view.free_on(i), self.capacity[i], self.view.is_up(i), self.view.cluster.machines[i].gpu_type)
            for i in self.machines
        ]
        base = 1 + max(job.gpus for job in self.jobs)
        weights = [float(base**index) for index in range(len(self.jobs))]

        racks = [[i for i in self.machines if self.rack_of[i] == r] for r in self.racks]
        alike: dict[object, list[list[int]]] = {}
        for r, rack in enumerate(racks):
            for i in rack:
                alike.setdefault((r, kinds[i]), []).append([i])
        for r, rack in enumerate(racks):
            alike.setdefault((tuple(sorted(kinds[i] for i in rack)), self.pat[r]), []).append(rack)
        for first, second in (pair for group in alike.values() for pair in pairwise(group)):
            signed = [*((i, 1.0) for i in first), *((i, -1.0) for i in second)]
            own_weights = list(zip(self.of, weights, strict=True))
            self.program.add([(own.w[i], sign * weight) for i, sign in signed for own, weight in own_weights], 0.0)

    def _tangent(self, index: int, rate: float) -> None:
        own, d = self.of[index], self.d[index]
        self.program.add([(own.seconds, rate), (own.spans, -2.0 * d), (own.v, d / rate)], least=0.0)

    def add_tangents(self, values: Floats) -> None:
        """Follow d / v more closely at the rates of a solution."""
        slowest = self.slowest
        for index, own in enumerate(self.of):
            if values[own.spans] > 0.5:
                rate = max(float(values[own.v]), slowest / 2.0)  # with a tangent at 0 numbers would be infinite
                self._tangent(index, rate)
                self.slowest = min(self.slowest, rate)

    def held(self, placements: Sequence[Placement]) -> dict[int, float]:
        """Return what fixes w, x and y to given placements."""
        fixed: dict[int, float] = {}
        for own, placement in zip(self.of, placements, strict=True):
            counts = Counter(placement.machines)
            server = placement.machines[0] if placement.server is None else placement.server
            sends = set(counts) != {server}
            for i in self.machines:
                fixed[own.w[i]] = counts[i]
                fixed[own.x[i]] = float(counts[i] > 0)
                fixed[own.y[i]] = float(sends and server == i)
        return fixed

    def choices(self, values: Floats) -> dict[int, float]:
        """Return what fixes w, x, y and z to those of a solution."""
        return {each: round(values[each]) for own in self.of for each in (*own.w, *own.x, *own.y, *own.z)}

    def value(self, values: Floats) -> float:
        """Return the objective of a solution; infinite if a job that sends has no rate."""
        total = 0.0
        for own, d in zip(self.of, self.d, strict=True):
            if values[own.spans] > 0.5:
                total += d / values[own.v] if values[own.v] > 0.0 else math.inf
        return float(total)

    def optimum(self, values: Floats, bound: float) -> NetPackOptimum:
        """Return a solution in words of the cluster."""
        placements, rates = [], []
        for own in self.of:
            machines = [i for i in self.machines for _ in range(round(values[own.w[i]]))]
            server = next((i for i in self.machines if values[own.y[i]] > 0.5), None)
            placements.append(Placement(machines, server=server, aggregate=bool(values[own.a] > GAP)))
            rates.append(float(values[own.v]) * self.unit_gbps if values[own.spans] > 0.5 else math.inf)
        value = self.value(values)
        return NetPackOptimum(
            placements=tuple(placements),
            rate_gbps=tuple(rates),
            merged_gbps=tuple(float(values[own.a]) * self.unit_gbps for own in self.of),
            comm_s=value * self.unit_s,
            bound_s=min(bound, value) * self.unit_s,
            proven=value - bound <= GAP * value,
        )


def _sum(variables: Iterable[int]) -> list[Term]:
    return [(each, 1.0) for each in variables]


def _fewest(gpus: int, room: Iterable[int]) -> int:
    """Return how many machines hold so many GPUs at least."""
    most = list(accumulate(sorted(room, reverse=True), initial=0))
    return next((count for count, held in enumerate(most) if held >= gpus), len(most))
