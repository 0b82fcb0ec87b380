"""The set-ups: a cluster, the jobs that come to it, and the order in which they wait.

The paper gives neither the load nor the parameters of its Poisson and normal demand. These are ours, and so is how
the real trace is brought to a load; docs/understand/repro-netpack.md has the reasons.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from cranny.model.cluster import Cluster
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

LINK_GBPS = 100.0
PAT_GBPS = 1000.0
HOUR_S = 3600.0
DAY_S = 86_400.0
MODELS = ("vgg11", "vgg16", "vgg19", "alexnet", "resnet50", "resnet101")
OWN_ORDER = "knapsack"  # of NetPack's queue, its step 1
WORKLOADS = ("real", "poisson", "normal")
FILE = "philly.parquet"
BUSY_S = 4_715_819.0  # of the log of Philly: 2017-10-01; few jobs came before
WINDOWS = 10  # of the log; a seed has one
MEDIAN_S, SIGMA = HOUR_S, 1.0  # of drawn durations, which are lognormal


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster of equal racks, and jobs for it."""

    workload: str  # one of WORKLOADS
    racks: int
    machines: int  # in a rack
    gpus: int  # in a machine
    jobs: int
    load: float  # GPU-seconds that jobs ask for, by the seconds from first to last arrival times `load_gpus`
    load_gpus: int
    mean_gpus: float = 0.0  # of a job, where that is drawn; the normal distribution has half of it as deviation
    longest_s: float = float("inf")  # jobs of the log that take longer are left out
    pat_gbps: float = PAT_GBPS
    oversubscription: float = 1.0
    order: str = OWN_ORDER  # of the queue

    @property
    def all_gpus(self) -> int:
        """Return the GPUs of the cluster."""
        return self.racks * self.machines * self.gpus

    def cluster(self) -> Cluster:
        """Return the cluster; one whose switches have no memory cannot aggregate."""
        return Cluster.fat_tree(
            self.racks, self.machines, self.gpus, LINK_GBPS, self.oversubscription, pat_gbps=self.pat_gbps or None
        )

    def trace(self, seed: int, file: Path | None) -> Trace:
        """Return the jobs; models are left to the seed."""
        if self.workload != "real":
            return self._drawn(seed)
        if file is None:
            return self._window(generate_trace("philly", 2 * self.jobs, seed), 0)
        return self._window(_log(file), seed % WINDOWS)

    def _drawn(self, seed: int) -> Trace:
        """Draw GPUs, durations and arrivals, which are Poisson."""
        rng = np.random.default_rng([seed, WORKLOADS.index(self.workload)])
        if self.workload == "poisson":
            gpus = rng.poisson(self.mean_gpus, self.jobs)
        else:
            gpus = np.rint(rng.normal(self.mean_gpus, self.mean_gpus / 2, self.jobs)).astype(np.int64)
        frame = pl.DataFrame(
            {
                "job_id": [f"{self.workload}-{number}" for number in range(self.jobs)],
                "submit_s": np.cumsum(rng.exponential(1.0, self.jobs)),
                "gpus": np.clip(gpus, 1, self.all_gpus).astype(np.int32),
                "duration_s": rng.lognormal(np.log(MEDIAN_S), SIGMA, self.jobs),
            }
        )
        return Trace(self.workload, self._at_load(frame))

    def _window(self, log: Trace, window: int) -> Trace:
        """Take some jobs in a row out of a log."""
        frame = log.frame.filter(pl.col("gpus") <= self.all_gpus, pl.col("duration_s") <= self.longest_s)
        first = window * (frame.height // WINDOWS)
        return replace(log, frame=self._at_load(frame.slice(first, self.jobs)))

    def _at_load(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Stretch or squeeze the times between arrivals, so that jobs ask for the load."""
        since_s = frame["submit_s"] - frame["submit_s"][0]
        asked_s = float((frame["gpus"] * frame["duration_s"]).sum()) / (self.load * self.load_gpus)
        return frame.with_columns(submit_s=since_s * (asked_s / float(since_s[-1])))


@lru_cache(maxsize=1)
def _log(file: Path) -> Trace:
    """Read the log from its busy part on, with what a replay needs."""
    log = read_trace(file).slice(BUSY_S)
    return replace(log, frame=log.frame.select("job_id", "submit_s", "gpus", "duration_s"))


def in_simulator(workload: str) -> Setup:
    """Return the set-up of the paper's simulator with its defaults."""
    if workload == "real":
        return Setup(workload, 16, 16, 4, jobs=2_000, load=10.0, load_gpus=1024)
    return Setup(workload, 16, 16, 4, jobs=1_000, load=0.6, load_gpus=1024, mean_gpus=8.0)


def on_testbed(workload: str) -> Setup:
    """Return five servers of two GPUs below one switch, as the paper's testbed has them."""
    if workload == "real":
        return Setup(workload, 1, 5, 2, jobs=400, load=0.8, load_gpus=10, longest_s=DAY_S)
    return Setup(workload, 1, 5, 2, jobs=400, load=0.4, load_gpus=10, mean_gpus=3.0)
