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

Departure: Eq. 1 subtracts C / f_max as a penalty for hot spots, which is smallest where most flows are, and so
draws jobs to hot spots. It is the share of its most crowded link that the job would get: we add it. For
oversubscribed networks the paper takes the largest of such shares of links and racks; we take the smallest, the
bottleneck. With `printed` the sign is as printed; docs/understand/netpack.md has what becomes of the jobs.

Departure: plans within single racks are candidates too, and come first among equals. The paper's penalty is to
keep jobs within racks, but its table, blind to racks, need not contain any such plan.

Departure: a plan with a server that it could do without is no plan, so that giving back surplus GPUs leaves every
server a worker. Among equally good places the parameter server is put beside a worker.

Departure: a period is a decision, and by default there is one at every event; `period_s` of a simulation batches.

`NetPackLean` is ours: in V the paper adds up what is left of the links of all servers of a plan, which favours
plans with many servers. A job streams at its smallest share, however many links it has. Lean counts what is left
once, as that share, and each server only with what the job takes there from others (and with a hundredth of its
link, so that of plans alike the one with the fewest servers wins).
"""

from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING

from cranny.core.knapsack import KnapsackBatches
from cranny.core.protocol import WaitsForGpus
from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start
from cranny.model.validate import yes_or_no
from cranny.policies._shared.ranked_fill import DECIMALS, rounded
from cranny.policies.netpack.netpack_explanation import NetPackRationale, ServerValue

if TYPE_CHECKING:
    from cranny.policies.netpack.plan_kernel import Bools, Ints, SteadyState


class NetPack(BySubmission, WaitsForGpus):
    """Place batches of jobs where the network gives most and loses least."""

    other_reason = "jobs of a higher total value go first"
    order = "knapsack"  # of step 1
    lean = False

    def __init__(self, *, printed: bool = False) -> None:
        self.printed = yes_or_no(printed, "netpack: printed")
        self._batches = KnapsackBatches()
        self._steady: SteadyState | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> "NetPack":
        """Copy which jobs were passed over; the copy computes the steady state again."""
        copied = type(self)(printed=self.printed)
        copied._batches = deepcopy(self._batches, memo)  # noqa: SLF001 - one of its own kind
        return copied

    def plan(self, view: Snapshot) -> Plan:
        """Algorithm 2: choose a batch, place its jobs one by one, and give aggregation to those that gain most."""
        batch = self._batches.choose(view) if view.waiting else []  # step 1
        return Plan(view.version, tuple(self._place_all(batch, view)) if batch else ())

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job: a batch of its own."""
        placed = self._place_all([Waiting(job)], view)
        return placed[0].placement if placed else None

    def _place_all(self, batch: list[Waiting], view: Snapshot) -> list[Start]:
        """Lines 3 to 10."""
        from cranny.policies.netpack.plan_kernel import SteadyState  # compiles, so only where it is used

        if self._steady is None or self._steady.cluster is not view.cluster:
            self._steady = SteadyState(view.cluster)
        steady = self._steady
        steady.estimate.follow(view)  # line 7
        free, up = view.free.copy(), view.up
        # What jobs that run leave of the PAT of each rack's switch, (racks,).
        memory_gbps: list[float] = rounded(steady.estimate.rates.left_gbps()[1]).tolist()
        placed: list[Start] = []
        for waiting in batch:
            placement = self._place(waiting.job, view.usable(waiting.job, free), up, steady)
            if placement is None:
                continue
            placed.append(Start(waiting.job, placement, waiting.attained_gpu_s))
            steady.estimate.add(waiting.job, placement)
            for machine in placement.machines:
                free[machine] -= 1
        return _aggregate(placed, steady, memory_gbps)

    def _place(self, job: Job, free: "Ints", up: "Bools", steady: "SteadyState") -> Placement | None:
        """Lines 4 to 9: on one machine if one is large enough, else where the plan has the highest value."""
        from cranny.policies.netpack import plan_kernel

        tightest = int(plan_kernel.tightest(free, job.gpus))
        if tightest != plan_kernel.NONE:
            return Placement.made((tightest,) * job.gpus, (), None, NetPackRationale(job, steady.cluster))
        if free.sum() < job.gpus:
            return None
        servers = steady.servers(free, up)
        rules = plan_kernel.PlanRules(self.lean, self.printed, job.collective == "ina")
        found = plan_kernel.best(servers, steady.spans, job.gpus, int(free.max()), rules)  # steps 2 and 3
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


class NetPackLean(NetPack):
    """NetPack that counts what is left of links once, and not for each server of a plan."""

    lean = True


def _aggregate(placed: list[Start], steady: "SteadyState", memory_gbps: list[float]) -> list[Start]:
    """Step 4: give the memory of switches to the jobs with the highest efficiency, until it is used up."""
    efficiency = {  # AE: a job's rate times the flows that come in at its switches
        job.id: (steady.estimate.rate_gbps(job.id) or 0.0) * sum(_merged_flows(placement, steady).values())
        for job, placement, *_ in placed
        if placement.server is not None
    }
    decided: dict[str, Placement] = {}
    for start in sorted(placed, key=lambda start: -round(efficiency.get(start.job.id, 0.0), DECIMALS)):
        job, placement = start.job, start.placement
        if job.id not in efficiency:
            continue
        rate_gbps = steady.estimate.rate_gbps(job.id) or 0.0
        switches = _merged_flows(placement, steady)
        full = [rack for rack in switches if memory_gbps[rack] <= 0.0]
        why = placement.rationale
        if isinstance(why, NetPackRationale):
            why = why._replace(efficiency=efficiency[job.id], full_switch=full[0] if full else None)
        decided[job.id] = Placement(placement.machines, (), None, why, placement.server, aggregate=not full)
        if full:
            steady.estimate.add(job, decided[job.id])
        else:
            for rack in switches:
                memory_gbps[rack] = round(memory_gbps[rack] - rate_gbps, DECIMALS)
    return [start._replace(placement=decided.get(start.job.id, start.placement)) for start in placed]


def _merged_flows(placement: Placement, steady: "SteadyState") -> Counter[int]:
    """Count the flows that come in at each rack's switch: from workers, and at the server's from other racks."""
    rack_of, server = steady.cluster.rack_of, placement.server
    flows: Counter[int] = Counter(rack_of[machine] for machine in placement.counts if machine != server)
    if server is not None and flows:
        flows[rack_of[server]] += len(flows) - (rack_of[server] in flows)
    return flows
