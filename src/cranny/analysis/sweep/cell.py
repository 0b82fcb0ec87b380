"""The cells of a sweep: what decides their results, how they ended, and the folder that keeps what they found."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError, InputError
from cranny.model.profile import ProfileLibrary
from cranny.process_pool import DiedError
from cranny.run import Result
from cranny.scenario import Scenario
from cranny.traces.generate import generate_trace
from cranny.traces.trace import Trace
from cranny.version import VERSION

KEY_CHARACTERS = 20
# Columns of the table before the measures; those of a cell's settings keep their names. A period of 0 is not among
# the settings, so that the keys of cells are those of earlier versions.
AXES = {"trace": pl.String, "cluster": pl.String, "load": pl.Float64, "policy": pl.String, "seed": pl.Int64}
SETTINGS = {
    "order": pl.String,
    "network": pl.String,
    "collective": pl.String,
    "jobs": pl.Int64,
    "price_per_gpu_hour": pl.Float64,
    "period_s": pl.Float64,
    "cranny": pl.String,
}
ENDED = {"key": pl.String, "status": pl.String, "reason": pl.String}


@dataclass(frozen=True, slots=True, eq=False)
class SweepCell:
    """One combination of a sweep."""

    axes: Mapping[str, str | float | None]  # names of trace, cluster and policy; load and seed
    settings: Mapping[str, Any]  # all that decides the result; clusters and files by their digest

    @property
    def key(self) -> str:
        """Return a name that changes with what decides the result, and with nothing else."""
        return digest(json.dumps(self.settings, sort_keys=True).encode())[:KEY_CHARACTERS]

    def scenario(self, inputs: "SweepInputs") -> Scenario:
        """Return what the settings describe; generated jobs, or a file's at the load that is wanted."""
        settings, load = self.settings, self.settings["load"]
        if settings["cranny"] != VERSION:
            raise CrannyError(f"cranny here is {VERSION}, where the sweep was started it is {settings['cranny']}")
        cluster = inputs.clusters[settings["cluster"]]
        trace = inputs.traces.get(settings["trace"])
        if trace is None:
            trace = generate_trace(settings["trace"], settings["jobs"], settings["seed"], load, cluster.gpus)
        elif load is not None:
            trace = at_load(trace, load, cluster.gpus)
        same = ("policy", "network", "seed", "order", "collective", "options", "price_per_gpu_hour")
        return Scenario(
            cluster,
            trace,
            profiles=inputs.profiles,
            period_s=settings.get("period_s", 0.0),  # sweeps of earlier versions have none
            **{name: settings[name] for name in same},
        )


@dataclass(frozen=True, slots=True, eq=False)
class SweepInputs:
    """What cells refer to: clusters and trace files by their digest, and the models that jobs may name."""

    clusters: Mapping[str, Cluster]
    traces: Mapping[str, Trace]
    profiles: ProfileLibrary


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """How a cell ended: with the summary of its run, or with the reason why it failed."""

    summary: Mapping[str, float] | None = None
    reason: str | None = None

    @classmethod
    def of(cls, result: Result) -> Self:
        """Keep of a run what the table needs."""
        return cls(dict(result.summary))

    @classmethod
    def failed(cls, error: Exception) -> Self:
        """Say in one line why a cell failed; a fault in one must not stop the others."""
        if isinstance(error, DiedError):
            return cls(reason="its process died, perhaps for lack of memory")
        if isinstance(error, CrannyError):
            return cls(reason=str(error))
        return cls(reason=" ".join(f"{type(error).__name__}: {error}".split()))


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def cluster_digest(cluster: Cluster) -> str:
    """Return a digest of all of a cluster that a simulation looks at; names are not part of it."""
    machines = [(machine.gpus, machine.gpu_type) for machine in cluster.machines]
    return digest(repr((machines, cluster.parent, cluster.uplink_gbps, cluster.pat_gbps)).encode())


def at_load(trace: Trace, load: float, gpus: int) -> Trace:
    """Stretch the times between submissions until the jobs ask for that share of the GPUs meanwhile."""
    submit_s = trace.frame["submit_s"]
    span_s = submit_s[-1] - submit_s[0]
    if span_s <= 0:
        raise InputError(f"{trace.name}: all jobs are submitted at once, so there is no load to change")
    asked = float((trace.frame["gpus"] * trace.frame["duration_s"]).sum())
    stretched = ((pl.col("submit_s") - submit_s[0]) * (asked / (load * gpus * span_s))).round(3)
    return replace(trace, frame=trace.frame.with_columns(stretched))


class CellStore:
    """Keeps what finished cells found, so that a sweep can be stopped and resumed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, cell: SweepCell) -> CellOutcome | None:
        """Return what a cell found if it is finished; a damaged file counts as none."""
        try:
            saved = json.loads(self._file(cell).read_bytes())
            return CellOutcome(dict(saved["summary"]))
        except (OSError, KeyError, TypeError, ValueError):
            return None

    def save(self, cell: SweepCell, summary: Mapping[str, float]) -> None:
        """Note what a finished cell found."""
        text = json.dumps({"settings": cell.settings, "summary": summary}, indent=1, allow_nan=False) + "\n"
        _replace(self._file(cell), lambda file: file.write_text(text, encoding="utf-8"))

    def write_table(self, table: pl.DataFrame) -> None:
        """Write the table as Parquet and CSV."""
        _replace(self.folder / "table.parquet", table.write_parquet)
        _replace(self.folder / "table.csv", table.write_csv)

    def _file(self, cell: SweepCell) -> Path:
        return self.folder / "cells" / f"{cell.key}.json"


def _replace(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all, so that a reader never sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(draft)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def table(ended: Iterable[tuple[SweepCell, CellOutcome]]) -> pl.DataFrame:
    """Return a row a cell, in the given order: what it was, how it ended, and its measures."""
    rows = [
        {
            **cell.axes,
            **{name: cell.settings.get(name, 0.0) for name in SETTINGS},
            "key": cell.key,
            "status": "done" if outcome.summary is not None else "failed",
            "reason": outcome.reason,
            **(outcome.summary or {}),
        }
        for cell, outcome in ended
    ]
    fixed = {**AXES, **SETTINGS, **ENDED}
    measures = dict.fromkeys(name for row in rows for name in row if name not in fixed)
    # Whole numbers stay whole.
    kinds = {
        name: pl.Int64 if all(isinstance(row.get(name), int | None) for row in rows) else pl.Float64
        for name in measures
    }
    return pl.DataFrame(rows, schema={**fixed, **kinds})
