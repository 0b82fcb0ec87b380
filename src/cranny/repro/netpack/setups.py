"""Set-ups of NetPack's experiments: a cluster, the jobs that come to it, and the order in which they wait.

The paper gives neither the load nor the parameters of its Poisson and normal demand. These are ours, and so is how
the real trace is brought to a load; docs/understand/repro-netpack.md has the reasons.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.repro.netpack.paper import COMB, NETPACK, PAPER_NAMES
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

Measure = Literal["jct", "de"]
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
class NetpackSetup:
    """A cluster of equal racks, and jobs for it."""

    workload: str  # one of WORKLOADS
    racks: int
    machines: int  # in a rack
    gpus: int  # in a machine
    jobs: int
    load: float  # GPU-seconds that jobs request, by the seconds from first to last arrival times `load_gpus`
    load_gpus: int
    mean_gpus: float = 0.0  # of a job, where that is drawn; the normal distribution has half of it as deviation
    longest_s: float = float("inf")  # jobs of the log that take longer are skipped
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
        """Return the jobs; models are drawn by the seed."""
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
        """Stretch or squeeze the times between arrivals, so that jobs request the load."""
        since_s = frame["submit_s"] - frame["submit_s"][0]
        requested_s = float((frame["gpus"] * frame["duration_s"]).sum()) / (self.load * self.load_gpus)
        return frame.with_columns(submit_s=since_s * (requested_s / float(since_s[-1])))


@lru_cache(maxsize=1)
def _log(file: Path) -> Trace:
    """Read the log from its busy part on, with what a replay needs."""
    log = read_trace(file).slice(BUSY_S)
    return replace(log, frame=log.frame.select("job_id", "submit_s", "gpus", "duration_s"))


def in_simulator(workload: str) -> NetpackSetup:
    """Return the set-up of the paper's simulator with its defaults."""
    if workload == "real":
        return NetpackSetup(workload, 16, 16, 4, jobs=2_000, load=10.0, load_gpus=1024)
    return NetpackSetup(workload, 16, 16, 4, jobs=1_000, load=0.6, load_gpus=1024, mean_gpus=8.0)


def on_testbed(workload: str) -> NetpackSetup:
    """Return five servers of two GPUs below one switch, as the paper's testbed has them."""
    if workload == "real":
        return NetpackSetup(workload, 1, 5, 2, jobs=400, load=0.8, load_gpus=10, longest_s=DAY_S)
    return NetpackSetup(workload, 1, 5, 2, jobs=400, load=0.4, load_gpus=10, mean_gpus=3.0)


# Policies of the paper and two of ours.
SCHEMES = (NETPACK, "netpack-lean", *(name for name in PAPER_NAMES if name != NETPACK), "best-fit")
# Forms of NetPack for single experiments: the sign of Eq. 1 as printed, and its placement with another queue.
PRINTED, IN_ORDER = "netpack-printed", "netpack-fifo"
QUICK_JOBS = 100
Panel = Mapping[str, NetpackSetup]  # set-ups that are shown beside each other, by label


@dataclass(frozen=True, slots=True)
class NetpackExperiment:
    """One figure of the paper, or a question of ours: set-ups in panels, and the policies on each of them."""

    key: str
    title: str
    axis: str
    panels: Mapping[str, Panel]
    measure: Measure = "jct"
    schemes: tuple[str, ...] = SCHEMES

    @property
    def heading(self) -> str:
        """Return the title, with the number of a figure of the paper."""
        return f"Fig. {self.key}: {self.title}" if self.key.isdigit() else self.title


def _vary(base: NetpackSetup, field: str, values: Mapping[str, float | str]) -> Panel:
    """Return set-ups that differ from one in a field, by label."""
    return {label: replace(base, **{field: value}) for label, value in values.items()}  # type: ignore[arg-type]


LABELS = {"real": "real trace", "poisson": "Poisson", "normal": "normal"}
BOTH: Mapping[str, Panel] = {
    "simulator": {label: in_simulator(workload) for workload, label in LABELS.items()},
    "testbed": {label: on_testbed(workload) for workload, label in LABELS.items()},
}
RATIOS = {"1:1": 1.0, "2:1": 2.0, "4:1": 4.0, "8:1": 8.0, "20:1": 20.0}
MEMORY = {"1000": 1000.0, "200": 200.0, "50": 50.0, "0": 0.0}
# In 16 racks each, as the paper has them; the same jobs come to all of them.
SERVERS = {"112": 7, "256": 16, "1,008": 63, "10,000": 625}
LOADS = {"0.3": 0.3, "0.6": 0.6, "0.9": 0.9}
ORDERS = {OWN_ORDER: OWN_ORDER, "fifo": "fifo"}
REAL, POISSON = in_simulator("real"), in_simulator("poisson")
EXPERIMENTS = {
    each.key: each
    for each in (
        NetpackExperiment("7", "mean JCT", "jobs", BOTH),
        NetpackExperiment("8", "distribution efficiency", "jobs", BOTH, "de"),
        NetpackExperiment(
            "9", "mean JCT by cluster scale", "servers", {"real trace": _vary(REAL, "machines", SERVERS)}
        ),
        NetpackExperiment(
            "11",
            "mean JCT by switch memory",
            "PAT, Gbps",
            {
                "testbed, real trace": _vary(on_testbed("real"), "pat_gbps", MEMORY),
                "testbed, Poisson": _vary(on_testbed("poisson"), "pat_gbps", MEMORY),
                "simulator, Poisson": _vary(POISSON, "pat_gbps", MEMORY),
            },
        ),
        NetpackExperiment(
            "12",
            "mean JCT by oversubscription",
            "oversubscription",
            {
                "real trace": _vary(REAL, "oversubscription", RATIOS),
                "Poisson": _vary(POISSON, "oversubscription", RATIOS),
            },
        ),
        NetpackExperiment("13", "mean JCT against Comb", "jobs", BOTH, schemes=(NETPACK, COMB)),
        NetpackExperiment(
            "load",
            "mean JCT by load",
            "load",
            {
                "Poisson, 1:1": _vary(POISSON, "load", LOADS),
                "Poisson, 4:1": _vary(replace(POISSON, oversubscription=4.0), "load", LOADS),
            },
        ),
        NetpackExperiment(
            "queue",
            "mean JCT by the baselines' queue order",
            "order",
            {"real trace": _vary(REAL, "order", ORDERS), "Poisson": _vary(POISSON, "order", ORDERS)},
            schemes=(*SCHEMES, IN_ORDER),
        ),
        NetpackExperiment(
            "sign",
            "mean JCT with the sign of Eq. 1 as printed",
            "oversubscription",
            {"Poisson": _vary(POISSON, "oversubscription", RATIOS)},
            schemes=(NETPACK, "netpack-lean", PRINTED),
        ),
    )
}


def chosen(keys: Iterable[str], *, quick: bool) -> tuple[NetpackExperiment, ...]:
    """Return experiments; if quick, with few jobs and without the cluster of 10,000 servers."""
    found = [EXPERIMENTS[key] for key in keys if key in EXPERIMENTS]
    return tuple(replace(each, panels=_small(each.panels)) if quick else each for each in found)


def _small(panels: Mapping[str, Panel]) -> dict[str, Panel]:
    return {
        title: {label: replace(setup, jobs=QUICK_JOBS) for label, setup in panel.items() if setup.machines < 100}
        for title, panel in panels.items()
    }


def source(traces: Path | None) -> Path | None:
    """Return the file of the real trace, if a folder is given."""
    if traces is None:
        return None
    if not (traces / FILE).is_file():
        raise InputError(f"--traces: {traces}: no {FILE} in this folder")
    return traces / FILE
