"""Titan's Algorithms 1-3 as printed, and its bandwidth constraint pair by pair and phase by phase.

J. Fang et al., "Non-Idle Machine-Aware Worker Placement for Efficient Distributed Training in GPU Clusters",
ICNP 2024, Sec. IV. Comments name the lines. Where the printed lines cannot be meant as they stand, a comment
`Reading:` says how they are read. Nothing is fast here: O(|S|^2 |N| T), as the paper's Theorem 7 has it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from cranny.core.snapshot import Snapshot
from cranny.core.traffic import parts, renumber
from cranny.model.collective import PLACED
from cranny.model.job import Job
from tests.reference.collectives import directed
from tests.reference.links import route

# Loads within rounding of a limit are within it.
SLACK = 1 + 1e-9


@dataclass(frozen=True)
class Violation:
    """Two machines that exchange more in a phase than passes between them in time."""

    phase: int
    source: int
    target: int
    sent_bytes: float
    limit_bytes: float


def left_between_gbps(view: Snapshot, a: int, b: int) -> float:
    """Return P(s, s'): the least that running jobs leave of any link on the way."""
    up, down = route(view.cluster, a, b)
    return min(max(0.0, view.cluster.uplink_gbps[link] - view.link_use_gbps(link)) for link in (*up, *down))


def volumes(job: Job, machines: Sequence[int]) -> list[dict[tuple[int, int], float]]:
    """Return C: for each phase t the bytes that each rank n sends to each rank n'."""
    phases = []
    for pattern, k_bytes in parts(job, renumber(machines)):
        for phase in pattern.phases:
            sent: dict[tuple[int, int], float] = defaultdict(float)
            for n, other in directed(phase):
                sent[n, other] += phase.share * k_bytes
            phases.append(dict(sent))
    return phases


def violations(job: Job, view: Snapshot, machines: Sequence[int], phase_budget_s: float = 1.0) -> list[Violation]:
    """Check Eq. 1's third constraint: for all s, s', t the sum of x[n,s] x[n',s'] C[t,n,n'] is within P[s,s'].

    Reading: C is bytes and P a rate, so the bytes must pass within `phase_budget_s`.
    """
    found = []
    for t, sent in enumerate(volumes(job, machines)):
        total: dict[tuple[int, int], float] = defaultdict(float)
        for (n, other), moved in sent.items():
            if machines[n] != machines[other]:
                total[machines[n], machines[other]] += moved
        for (s, target), moved in total.items():
            limit_bytes = left_between_gbps(view, s, target) * 1e9 / 8 * phase_budget_s
            if moved > limit_bytes * SLACK:
                found.append(Violation(t, s, target, moved, limit_bytes))
    return found


@dataclass
class Deployment:
    """Worker sets that are deployed so far (Phi), and what they put between machines."""

    job: Job
    view: Snapshot
    phase_budget_s: float
    machine_of: dict[int, int] = field(default_factory=dict)  # x, of the workers deployed
    used: list[int] = field(default_factory=list)  # the machines of Phi
    overhead: dict[tuple[int, int, int], float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        if self.job.collective in PLACED:
            raise ValueError("the paper knows no collective whose pairs depend on the placement")
        self._limits: dict[tuple[int, int], float] = {}
        # Of each worker: whom it sends to and gets from, in which phase, how much.
        self._talk: dict[int, list[tuple[int, int, bool, float]]] = defaultdict(list)
        for t, sent in enumerate(volumes(self.job, range(self.job.gpus))):
            for (n, other), moved in sent.items():
                self._talk[n].append((t, other, True, moved))
                self._talk[other].append((t, n, False, moved))

    def limit_bytes(self, s: int, other: int) -> float:
        """Return P[s, s'] times the budget."""
        if (s, other) not in self._limits:
            gbps = left_between_gbps(self.view, s, other)
            self._limits[s, other] = gbps * 1e9 / 8 * self.phase_budget_s * SLACK
        return self._limits[s, other]

    def feasible_workers(self, s: int) -> list[int]:
        """Algorithm 1: return A(s), workers that machine s can take besides those deployed elsewhere."""
        feasible: list[int] = []  # line 2
        available = [n for n in range(self.job.gpus) if n not in self.machine_of]  # line 3
        # Line 5 has one existing overhead a pair of machines. Reading: one a phase, as in Eq. 5.
        # Reading: what workers admitted to A(s) before put between s and the others counts too. As printed,
        # each worker is checked alone, and all of A(s) together could break Eq. 5.
        extra: dict[tuple[int, int, int], float] = {}
        for n in available:  # line 6
            if len(feasible) == self.view.free_on(s):
                break  # Reading: Eq. 1's second constraint; the printed lines never look at R_s
            added: dict[tuple[int, int, int], float] = {}
            for t, other, sends, moved in self._talk[n]:  # lines 7 and 8: all n' in N, all t in T
                if other not in self.machine_of:
                    continue
                elsewhere = self.machine_of[other]
                key = (t, s, elsewhere) if sends else (t, elsewhere, s)
                added[key] = added.get(key, 0.0) + moved
            # Line 9. Reading: printed, one pair within the limit admits n; the text asks it of all of them
            # ("if all communication pairs of worker n satisfy the bandwidth constraint").
            if all(
                self.overhead[key] + extra.get(key, 0.0) + moved <= self.limit_bytes(key[1], key[2])
                for key, moved in added.items()
            ):
                feasible.append(n)  # line 10
                for key, moved in added.items():
                    extra[key] = extra.get(key, 0.0) + moved
        return feasible  # line 15

    def deploy(self, s: int, workers: Sequence[int]) -> None:
        """Add the worker set of machine s to Phi."""
        self.used.append(s)
        for n in workers:
            for t, other, sends, moved in self._talk[n]:
                elsewhere = self.machine_of.get(other, s)
                if elsewhere != s:
                    self.overhead[(t, s, elsewhere) if sends else (t, elsewhere, s)] += moved
        self.machine_of |= dict.fromkeys(workers, s)

    def left(self) -> int:
        """Count the workers of N - R."""
        return self.job.gpus - len(self.machine_of)


def saved_machines(worker_sets: Sequence[Sequence[int]]) -> int:
    """H(Phi), Eq. 4: how many machines merging these worker sets saves.

    Reading: Eq. 4 counts sets against C(N) = 1 for all workers together and so grows with every set, however
    small. Definition 1 says "reduction of deployed machine number"; line 2 of Alg. 2 begins with workers spread
    out, so a set of k workers merged on one machine saves k - 1 machines.
    """
    return sum(len(workers) - 1 for workers in worker_sets if workers)


def merge(deployment: Deployment, machines: Sequence[Sequence[int]]) -> None:
    """Algorithm 2 over a machine set: deploy, again and again, the worker set that saves the most machines.

    Reading: the set is given in classes, the first preferred; a later class is looked at only when no machine of
    those before it takes a worker. As printed (`for s in S_n`), idle machines, being roomiest, would always win
    and O1 would suffer.
    """
    for preferred in machines:
        # Line 5. Reading: at most K = |S| rounds; none once all workers are deployed. Line 18 puts what remains
        # after K - 1 rounds on one more machine, bandwidth or not; the last round does so where it may.
        while deployment.left():
            opt, best, chosen = -1, -1, list[int]()  # line 6
            for s in preferred:  # line 7
                if s in deployment.used:
                    continue
                workers = deployment.feasible_workers(s)  # line 16, done when it is needed
                tmp = saved_machines([workers])  # lines 8 and 9: what is deployed adds the same to all
                if workers and tmp > opt:  # line 10; ties go to the lowest machine
                    opt, best, chosen = tmp, s, workers  # line 11
            if not chosen:
                break
            deployment.deploy(best, chosen)  # line 15


def place(job: Job, view: Snapshot, phase_budget_s: float = 1.0) -> tuple[int, ...] | None:
    """Algorithm 3: return the machine of each rank, or None if the literal algorithm finds none."""
    machines = range(len(view.cluster.machines))
    offered = [
        s
        for s in machines
        if view.free_on(s) and job.gpu_type in (None, view.cluster.machines[s].gpu_type) and view.is_up(s)
    ]
    idle = [s for s in offered if view.is_idle(s)]  # S_n
    in_use = [s for s in offered if not view.is_idle(s)]  # S_f
    # Lines 1 to 4: which idle machines would the job take, were there no others?
    on_idle = Deployment(job, view, phase_budget_s)
    merge(on_idle, [idle])
    # Lines 5 to 8. Reading: non-idle machines are preferred, which is what step 2 is there for.
    final = Deployment(job, view, phase_budget_s)
    merge(final, [in_use, on_idle.used])
    if final.left():
        return None
    return tuple(final.machine_of[n] for n in range(job.gpus))  # lines 9 to 12
