"""Set-ups of NetPack's experiments: a cluster, the jobs that come to it, and the order in which they wait.

The paper gives neither the load nor the parameters of its Poisson and normal demand. These are ours, and so is how
the real trace is brought to a load; docs/understand/repro-netpack.md has the reasons.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.repro.netpack.paper import BY_MACHINE, COMB, NETPACK, TEXT, Measure, PanelText
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

LINK_GBPS = 100.0
PAT_GBPS = 1000.0
HOUR_S = 3600.0
MODELS = ("vgg11", "vgg16", "vgg19", "alexnet", "resnet50", "resnet101")
OWN_ORDER = "knapsack"  # of NetPack's queue, its step 1
WORKLOADS = {"real": "real trace", "poisson": "Poisson", "normal": "normal"}  # with their labels
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
        rng = np.random.default_rng([seed, list(WORKLOADS).index(self.workload)])
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


def setup(on: str, workload: str) -> NetpackSetup:
    """Return the paper's simulator, or its testbed, with its defaults for a workload."""
    return NetpackSetup(workload, **TEXT.setups[on][workload])


# Policies of the paper, its baselines in both readings, and two of ours.
SCHEMES = (NETPACK, "netpack-lean", *(name for name in TEXT.names if name != NETPACK), "best-fit")
OF_PAPER = (NETPACK, *dict.fromkeys(name for names in TEXT.baselines.values() for name in names))
QUICK_JOBS = 100
OWN_SEEDS = 3  # for questions of ours
Panel = Mapping[str, NetpackSetup]  # set-ups that are shown beside each other, by label


class NetpackExperiment(NamedTuple):
    """One figure of the paper, or a question of ours: set-ups in panels, and the policies on each of them."""

    key: str
    title: str
    axis: str
    measure: Measure
    schemes: tuple[str, ...]
    panels: Mapping[str, Panel]

    def rivals(self, reading: str = BY_MACHINE) -> tuple[str, ...]:
        """Return the baselines that NetPack is measured by, in one reading: Comb only where there is no other."""
        found = tuple(name for name in TEXT.baselines[reading] if name in self.schemes)
        return found or (COMB,) * (COMB in self.schemes)

    @property
    def readings(self) -> list[str]:
        """Return the readings of the baselines that are run."""
        return list(TEXT.baselines) if len(set(map(self.rivals, TEXT.baselines))) > 1 else [BY_MACHINE]

    def seeds(self, seeds: int) -> int:
        """Return how many seeds are run: no more than a few for a question of ours."""
        return seeds if self.key.isdigit() else min(seeds, OWN_SEEDS)

    @property
    def heading(self) -> str:
        """Return the title, with the number of a figure of the paper."""
        return f"Fig. {self.key}: {self.title}" if self.key.isdigit() else self.title


def _panel(text: PanelText) -> Panel:
    """Return the set-ups of a panel."""
    if not text.vary:
        return {label: setup(text.on, workload) for workload, label in WORKLOADS.items()}
    base = replace(setup(text.on, text.workload), **text.fixed)
    return {
        label: replace(base, **{text.vary: value})
        for label, value in TEXT.varied[text.vary].items()
        if not text.points or label in text.points
    }


EXPERIMENTS = {
    key: NetpackExperiment(
        key,
        text.title,
        text.axis,
        text.measure,
        (*(text.schemes or (OF_PAPER if text.paper_only else SCHEMES)), *text.more_schemes),
        {title: _panel(panel) for title, panel in text.panels.items()},
    )
    for key, text in TEXT.experiments.items()
}


def chosen(keys: Iterable[str], *, quick: bool) -> tuple[NetpackExperiment, ...]:
    """Return experiments; if quick, with few jobs and without the cluster of 10,000 servers."""
    found = [EXPERIMENTS[key] for key in keys if key in EXPERIMENTS]
    if not quick:
        return tuple(found)

    def small(panel: Panel) -> Panel:
        return {label: replace(each, jobs=QUICK_JOBS) for label, each in panel.items() if each.machines < 100}

    return tuple(
        each._replace(panels={title: small(panel) for title, panel in each.panels.items()}) for each in found
    )


def source(traces: Path | None) -> Path | None:
    """Return the file of the real trace, if a folder is given."""
    if traces is None:
        return None
    if not (traces / FILE).is_file():
        raise InputError(f"--traces: {traces}: no {FILE} in this folder")
    return traces / FILE
