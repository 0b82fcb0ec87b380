"""One cell of a sweep: all that decides its result, the key made of that, and running it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError, InputError
from cranny.model.profile import ProfileLibrary
from cranny.run import run
from cranny.scenario import Scenario
from cranny.traces.generate import generate_trace
from cranny.traces.trace import Trace
from cranny.version import VERSION

KEY_CHARACTERS = 20


@dataclass(frozen=True, slots=True, eq=False)
class SweepCell:
    """One combination of a sweep."""

    axes: Mapping[str, str | float | None]  # names of trace, cluster and policy; load and seed
    settings: Mapping[str, Any]  # all that decides the result; clusters and files by their digest

    @property
    def key(self) -> str:
        """Return a name that changes with what decides the result, and with nothing else."""
        return digest(json.dumps(self.settings, sort_keys=True).encode())[:KEY_CHARACTERS]


@dataclass(frozen=True, slots=True, eq=False)
class SweepInputs:
    """What cells refer to: clusters and trace files by their digest, and the models that jobs may name."""

    clusters: Mapping[str, Cluster]
    traces: Mapping[str, Trace]
    profiles: ProfileLibrary

    def scenario(self, settings: Mapping[str, Any]) -> Scenario:
        """Return the scenario that the settings of a cell describe."""
        cluster = self.clusters[settings["cluster"]]
        same = ("policy", "network", "seed", "order", "collective", "options", "price_per_gpu_hour")
        return Scenario(
            cluster,
            self.trace(settings, cluster.gpus),
            profiles=self.profiles,
            period_s=settings.get("period_s", 0.0),  # sweeps of earlier versions have none
            **{name: settings[name] for name in same},
        )

    def trace(self, settings: Mapping[str, Any], gpus: int) -> Trace:
        """Return the jobs of a cell: a file's, at the load that is wanted, or generated ones."""
        name, load = settings["trace"], settings["load"]
        if name not in self.traces:
            return generate_trace(name, jobs=settings["jobs"], seed=settings["seed"], load=load, gpus=gpus)
        return self.traces[name] if load is None else at_load(self.traces[name], load, gpus)


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """How a cell ended: with the summary of its run, or with the reason why it failed."""

    summary: Mapping[str, float] | None = None
    reason: str | None = None


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def cluster_digest(cluster: Cluster) -> str:
    """Return a digest of all of a cluster that a simulation looks at; names are not part of it."""
    machines = [(machine.gpus, machine.gpu_type) for machine in cluster.machines]
    return digest(repr((machines, cluster.parent, cluster.uplink_gbps, cluster.pat_gbps)).encode())


def run_cell(cell: SweepCell, inputs: SweepInputs) -> CellOutcome:
    """Run a cell; an error becomes its reason, in one line."""
    try:
        return CellOutcome(_summary(cell.settings, inputs))
    except CrannyError as error:
        return CellOutcome(reason=str(error))
    except Exception as error:  # noqa: BLE001 - a fault in one cell must not stop the others
        return CellOutcome(reason=" ".join(f"{type(error).__name__}: {error}".split()))


def _summary(settings: Mapping[str, Any], inputs: SweepInputs) -> Mapping[str, float]:
    """Simulate what the settings say."""
    if settings["cranny"] != VERSION:
        raise CrannyError(f"cranny here is {VERSION}, where the sweep was started it is {settings['cranny']}")
    return dict(run(inputs.scenario(settings)).summary)


def at_load(trace: Trace, load: float, gpus: int) -> Trace:
    """Stretch the times between submissions until the jobs ask for that share of the GPUs meanwhile."""
    submit_s = trace.frame["submit_s"]
    span_s = submit_s[-1] - submit_s[0]
    if span_s <= 0:
        raise InputError(f"{trace.name}: all jobs are submitted at once, so there is no load to change")
    asked = float((trace.frame["gpus"] * trace.frame["duration_s"]).sum())
    stretched = ((pl.col("submit_s") - submit_s[0]) * (asked / (load * gpus * span_s))).round(3)
    return replace(trace, frame=trace.frame.with_columns(stretched))
