"""Machines that were in use although no run says so: jobs were there that are skipped or contradict others."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from cranny.analysis.whatif.as_it_was import STRETCH, TOKEN, AsItWas, machines_by_name
from cranny.analysis.whatif.headroom import idle_stretches, switched_off
from cranny.model.cluster import Cluster
from cranny.traces.inspect import StepFunction, Window
from cranny.traces.trace import Trace


class KeptMachines(NamedTuple):
    """Machines on which skipped jobs were: when machines are removed, these go last."""

    last: frozenset[int]
    least: int  # machines that stay, at least


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """Stretches (machine, start_s, end_s) in which machines count as used beside the runs of a case."""

    skipped: pl.DataFrame  # of jobs that no row has: they need a place under every policy, here the one of the log
    unplaced: pl.DataFrame  # of jobs that the row as it was lacks, and replays place

    @classmethod
    def of(cls, trace: Trace, cluster: Cluster, was: AsItWas | None) -> Self:
        """Find the machines of the cluster on which such jobs were."""
        return cls(_skipped(trace, cluster), pl.DataFrame(schema=STRETCH) if was is None else was.beside)

    def beside(self, *, log: bool) -> pl.DataFrame:
        """Return the stretches that count for the log itself, or for a replay."""
        return pl.concat([self.skipped, self.unplaced]) if log else self.skipped

    def machine_hours(self, cluster: Cluster, window: Window) -> float:
        """Return for how long skipped jobs were on machines, each counted once at a time."""
        idle = idle_stretches(self.skipped, len(cluster.machines), window)
        return switched_off(idle, cluster.machines, window).used_hours

    def kept(self, cluster: Cluster, window: Window) -> KeptMachines:
        """Return which machines should stay for skipped jobs: as many as these were on at a time, or more."""
        idle = idle_stretches(self.skipped, len(cluster.machines), window)
        starts_s, ends_s = idle["start_s"].to_numpy(), idle["end_s"].to_numpy()
        free = StepFunction.of(starts_s, ends_s, np.ones(idle.height), window)
        return KeptMachines(frozenset(self.skipped["machine"]), len(cluster.machines) - int(free.value.min()))


def _skipped(trace: Trace, cluster: Cluster) -> pl.DataFrame:
    """Return where skipped jobs of a log were; machines that the cluster has not are dropped."""
    listed = trace.presence.select(
        pl.col("ran_on").str.split(" "), "start_s", end_s=pl.col("start_s") + pl.col("duration_s")
    ).explode("ran_on")
    listed = listed.with_columns(name=pl.col("ran_on").str.extract(TOKEN, 1))
    known = machines_by_name(listed["name"].drop_nulls().unique(maintain_order=True), cluster.machines)
    machine = pl.col("name").replace_strict(known, default=None, return_dtype=pl.Int32)
    return listed.select(machine.alias("machine"), "start_s", "end_s").drop_nulls("machine")
