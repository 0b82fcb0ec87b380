"""Fig. 10 of NetPack (ASPLOS 2024): CPU seconds to place a job, on 100 to 10,000 servers of 4 GPUs each.

As in the paper, 4,000 jobs of a Philly-like mix are placed on 16 racks. They come in batches; when the cluster is
too full for the next one, the jobs that were placed first end. The time is that of the policy alone: choosing the
batch, steady state, machines, parameter servers and aggregation.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.plan import Start
from cranny.policies.netpack import NetPack
from cranny.traces.generate import generate_trace

RACKS = 16
GPUS_PER_SERVER = 4
PAT_GBPS = 1000.0
SERVERS = (100, 1_000, 10_000)
JOBS = 4_000
BATCH = 32  # "dozens of new jobs in every scheduling period"
LARGEST = 128  # GPUs of a job, so that every one fits the smallest cluster
WARM_UP = 200  # jobs, so that most of compiling is not measured


def seconds_per_job(policy: NetPack, servers: int, jobs: int, largest: int = LARGEST) -> float:
    """Return what a policy takes per job that it places."""
    cluster = Cluster.fat_tree(RACKS, -(-servers // RACKS), GPUS_PER_SERVER, pat_gbps=PAT_GBPS)
    state = ClusterState(cluster)
    trace = generate_trace("philly", jobs=2 * jobs, seed=0)
    coming = (job for job in trace.jobs(0, "ina") if job.gpus <= largest)
    running: deque[str] = deque()
    waiting: list[Waiting] = []
    spent_s = 0.0
    placed = 0
    while placed < jobs:
        waiting += [Waiting(job) for job in islice(coming, BATCH - len(waiting))]
        wanted = sum(each.job.gpus for each in waiting)
        while running and cluster.gpus - state.held_gpus < wanted:
            state.release(running.popleft())
        view = state.snapshot(float(placed), waiting)
        began = time.process_time()
        plan = policy.plan(view)
        spent_s += time.process_time() - began
        del view  # or committing would copy the accounting
        state.commit(plan)
        started = [action.job.id for action in plan.actions if isinstance(action, Start)]
        running += started
        placed += len(started)
        waiting = [each for each in waiting if each.job.id not in started]
    return spent_s / placed


def measure(servers: Sequence[int], jobs: int, progress: Callable[[int], None]) -> dict[int, float]:
    """Return the seconds that NetPack takes to place a job, by servers."""
    seconds_per_job(NetPack(), servers[0], jobs)  # all of them: what is needed late would be compiled only then
    found = {}
    for done, count in enumerate(servers, 1):
        found[count] = seconds_per_job(NetPack(), count, jobs)
        progress(done)
    return found
