"""NetPack: place jobs by what the steady state of the network leaves, with in-network aggregation.

B. Zhao, W. Xu, S. Liu, Y. Tian, Q. Wang, W. Wu, "Training Job Placement in Clusters with Statistical In-Network
Aggregation", ASPLOS 2024, Sec. 5.2 and Algorithm 2. The steady state of Sec. 4 is `network.steady`.

Symbols of the paper and their names here:
    Jobs, JobsToPlace    `view.waiting`; what `KnapsackBatches.choose` returns (step 1, `core.knapsack`)
    server.GPUs          `free`: a plan takes all free GPUs of a server or none
    server.bw, C         `left_gbps`, `link_gbps`: of a server's uplink
    server.flows         `flows`: that its uplink carries
    V[s, f, g]           `plan_kernel._table`: the value of servers with f flows at most and g GPUs together
    FC_r, C(rack)        `rack_flows`, `rack_gbps`: of a rack's uplink
    AE                   `efficiency`: aggregation efficiency, the rate times the flows that switches merge

Departure: line 4 of Alg. 2 must be >=, or a job that fits a server exactly would be spread. The paper does not say
which of several servers takes a whole job: the one with the fewest free GPUs, which keeps large holes for large
jobs.

Departure: Eq. 1 subtracts C / f_max as a penalty for hot spots, and for oversubscribed networks the largest of the
shares C / (f_max + 1) of servers and C(rack) / (FC + n) of racks. A share is smallest where most flows are: that
draws jobs to hot spots. The smallest share, of the most crowded link, is what the job would get: we add that. With
`printed` Eq. 1 is as printed, with f_max + 1 as in the text (f_max may be 0), and for the racks whose uplinks the
job uses (elsewhere n is 0).

Departure: plans within single racks are candidates too, and come first among equals. The paper's penalty is to
keep jobs within racks, but its table, blind to racks, need not contain any such plan. `rack_plans` turns them off.

Departure: which of equal racks is first is not in the paper; `ties` has the rules (`tie_rules`). For what step 4
decides, and when, is not clear; `ina` has the readings (`selective_ina`).

Departure: a plan with a server that it could do without is no plan, so that giving back surplus GPUs leaves every
server a worker. Among equally good places the parameter server is put beside a worker.

Departure: a period is a decision, and by default there is one at every event; `period_s` of a simulation batches.

`NetPackLean` is ours: in V the paper adds up what is left of the links of all servers of a plan, which favours
plans with many servers. A job streams at its smallest share, however many links it has. Lean counts what is left
once, as that share, and each server only with what the job takes there from others (and with a hundredth of its
link, so that of plans alike the one with the fewest servers wins).
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.knapsack import KnapsackBatches
from cranny.core.protocol import WaitsForGpus
from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Aggregate, Plan, Start
from cranny.model.validate import one_of, yes_or_no
from cranny.policies.netpack.netpack_explanation import NetPackRationale, ServerValue
from cranny.policies.netpack.selective_ina import INA_RULES, Aggregated, give_memory
from cranny.policies.netpack.tie_rules import TIE_RULES, rack_ranks

if TYPE_CHECKING:
    from cranny.policies.netpack.plan_kernel import Bools, Floats, Ints
    from cranny.policies.netpack.steady_state import SteadyState


class NetPack(BySubmission, WaitsForGpus):
    """Place batches of jobs where the network gives most and loses least."""

    other_reason = "jobs of a higher total value go first"
    order = "knapsack"  # of step 1
    lean = False

    def __init__(
        self,
        *,
        printed: bool = False,
        rack_plans: bool = True,
        ties: str = "tightest",
        ina: str = "again",
        rng: np.random.Generator | None = None,
    ) -> None:
        self.printed = yes_or_no(printed, "netpack: printed")
        self.rack_plans = yes_or_no(rack_plans, "netpack: rack_plans")
        self.ties = one_of(ties, TIE_RULES, "netpack: ties")
        self.ina = one_of(ina, INA_RULES, "netpack: ina")
        self._rng = rng if rng is not None else np.random.default_rng(0)
        self._batches = KnapsackBatches()
        self._steady: SteadyState | None = None
        self._decided_s: float | None = None  # when it was last decided about running jobs
        self._short = True  # whether memory was short then, so that jobs that end leave some to others

    def __deepcopy__(self, memo: dict[int, object]) -> "NetPack":
        """Copy which jobs were passed over; the copy computes the steady state again."""
        copied = type(self)(
            printed=self.printed,
            rack_plans=self.rack_plans,
            ties=self.ties,
            ina=self.ina,
            rng=deepcopy(self._rng, memo),
        )
        copied._batches = deepcopy(self._batches, memo)  # noqa: SLF001 - one of its own kind
        copied._decided_s, copied._short = self._decided_s, self._short  # noqa: SLF001
        return copied

    def plan(self, view: Snapshot) -> Plan:
        """Algorithm 2: choose a batch, place its jobs one by one, and give aggregation to those that gain most."""
        batch = self._batches.choose(view) if view.waiting else []  # step 1
        # Asked again at the same time it is still the same decision: rates that follow from it do not change it.
        again = self.ina == "again" and view.now_s != self._decided_s and (bool(batch) or self._short)
        self._decided_s = view.now_s
        return Plan(view.version, tuple(self._place_all(batch, view, again=again)) if batch or again else ())

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job: a batch of its own."""
        placed = next(self._place_all([Waiting(job)], view, again=False), None)
        return placed.placement if isinstance(placed, Start) else None

    def _place_all(self, batch: Sequence[Waiting], view: Snapshot, *, again: bool) -> Iterator[Action]:
        """Lines 3 to 10; with `again` step 4 is about running jobs, too."""
        from cranny.policies.netpack.steady_state import SteadyState  # compiles, so only where it is used

        if self._steady is None or self._steady.cluster is not view.cluster:
            self._steady = SteadyState(view.cluster)
        steady = self._steady
        steady.follow(view)  # line 7
        memory_gbps = steady.left.memory_gbps
        free, up = view.free.copy(), view.up
        starts: list[Start] = []
        for waiting in batch:
            placement = self._place(waiting.job, view.usable(waiting.job, free), up, steady)
            if placement is None:
                continue
            starts.append(Start(waiting.job, placement, waiting.attained_gpu_s))
            steady.add(waiting.job, placement)
            for machine in placement.machines:
                free[machine] -= 1
        placed = {start.job.id for start in starts}
        if again:
            self._short = steady.short_of_memory()
        decided = self._aggregate(steady, placed, None if again and self._short else memory_gbps)
        for start in starts:
            yield start._replace(placement=decided[start.job.id]) if start.job.id in decided else start
        yield from (Aggregate(job_id, where) for job_id, where in decided.items() if job_id not in placed)

    def _place(self, job: Job, free: "Ints", up: "Bools", steady: "SteadyState") -> Placement | None:
        """Lines 4 to 9: on one machine if one is large enough, else where the plan has the highest value."""
        racks = rack_ranks(self.ties, steady, self._rng)
        tightest = steady.tightest(free, job.gpus, *racks)
        if tightest is not None:
            return Placement.made((tightest,) * job.gpus, (), None, NetPackRationale(job, steady.cluster))
        if free.sum() < job.gpus:
            return None
        from cranny.policies.netpack import plan_kernel  # compiles; and importing takes time even if it is there

        servers = steady.servers(free, up)
        rules = plan_kernel.PlanRules(self.lean, self.printed, job.collective == "ina")
        most_free = int(free.max())
        found = plan_kernel.best_in_order(
            servers, *racks, self.rack_plans, job.gpus, most_free, rules
        )  # steps 2, 3
        left_gbps, flows = servers.left_gbps, servers.flows
        values = [
            ServerValue(at, float(left_gbps[at]), float(flows[at]), plan_kernel.value(servers, self.lean, at, 1.0))
            for at in found.machines.tolist()
        ]
        held = {each.machine: int(free[each.machine]) for each in values}
        # GPUs that a plan has too many are given back on its least loaded server, where some are left.
        least_loaded = min(values, key=lambda each: (each.flows, -each.left_gbps, each.machine))
        held[least_loaded.machine] -= sum(held.values()) - job.gpus
        machines = tuple([machine for machine, gpus in held.items() for _ in range(gpus)])
        why = NetPackRationale(job, steady.cluster, tuple(values), found.server_value, found.share_gbps)
        server = None if found.server == plan_kernel.NONE else int(found.server)
        return Placement.made(machines, (), None, why, server)

    def _aggregate(
        self, steady: "SteadyState", placed: AbstractSet[str], left_gbps: "Floats | None"
    ) -> dict[str, Placement]:
        """Step 4: give the memory of switches to the jobs with the highest efficiency, until it is used up.

        `left_gbps` is for jobs just placed; without it all memory is given, to all jobs. Returns new placements.
        """
        jobs = {
            job_id: Aggregated(job_id, steady.rate_gbps(job_id), served.merged)
            for job_id, served in steady.served.items()
            if left_gbps is None or job_id in placed
        }
        memory_gbps = (steady.pat_gbps if left_gbps is None else left_gbps).tolist()
        decided = {}
        for job_id, (aggregate, full_switch) in give_memory(jobs.values(), memory_gbps, self.ina).items():
            old = steady.served[job_id].placement
            if job_id in placed or aggregate != old.aggregate:
                why = old.rationale
                if isinstance(why, NetPackRationale):
                    why = why._replace(efficiency=jobs[job_id].efficiency, full_switch=full_switch)
                decided[job_id] = old.aggregated(aggregate, why)
        return decided


class NetPackLean(NetPack):
    """NetPack that counts what is left of links once, and not for each server of a plan."""

    lean = True
