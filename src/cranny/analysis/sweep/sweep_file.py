"""Sweeps from YAML or JSON files; the format is described in `docs/use/sweeps.md`."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from cranny.analysis.sweep.cell import SweepCell, SweepInputs, cluster_digest
from cranny.core.engine import period
from cranny.core.queue import ORDERS
from cranny.model.cluster import Cluster, shape
from cranny.model.collective import COLLECTIVES
from cranny.model.errors import CrannyError, InputError, unknown
from cranny.model.profile import ProfileLibrary, library
from cranny.model.yaml_file import Document, Fields, Positive, Step, checked
from cranny.network.networks import network as network_model
from cranny.policies import TABLE
from cranny.policy_choice import MAX_SEED, decision_period_s, seeded_policy
from cranny.traces.generate import MAX_JOBS, presets
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace
from cranny.version import VERSION

MAX_CELLS = 1_000_000
MAX_SEEDS = 10_000
DEFAULT_LOAD = 0.8  # of generated traces; a file is replayed unchanged


def _counted(value: Any) -> Any:
    """Turn a number of seeds into the seeds 0, 1, 2 and so on."""
    return list(range(value)) if type(value) is int and 1 <= value <= MAX_SEEDS else value


Text = Annotated[str, Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NamedFields(Fields):
    """What may also be given by its first field alone."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {next(iter(cls.model_fields)): value} if isinstance(value, str) else value


class PolicyFields(NamedFields):
    """A policy, by its name alone or with an order, a period and options of its own."""

    name: Text
    order: Text | None = None
    period_s: NotNegative | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class SweepClusterFields(NamedFields):
    """A cluster file, or RACKSxMACHINESxGPUS with other arguments of `Cluster.fat_tree`."""

    cluster: Text
    link_gbps: Positive | None = None
    oversubscription: Positive | None = None
    pat_gbps: Positive | None = None


class SweepFields(Fields):
    """The whole file."""

    name: Annotated[str, Field(pattern=r"^\w[\w.-]{0,99}$")] | None = None
    policies: Annotated[list[PolicyFields], Field(min_length=1)]
    clusters: Annotated[list[SweepClusterFields], Field(min_length=1)]
    traces: Annotated[list[Text], Field(min_length=1)]
    loads: Annotated[list[Positive], Field(min_length=1)] | None = None
    seeds: Annotated[list[Seed], Field(min_length=1), BeforeValidator(_counted)] = Field(default=[0])
    jobs: Annotated[int, Field(ge=1, le=MAX_JOBS)] = 5000
    network: Text = "isolated"
    order: Text | None = None
    period_s: NotNegative = 0.0
    collective: Text | None = None
    price_per_gpu_hour: NotNegative = 1.0
    profiles: Text | None = None


_BELOW: dict[str, type[Fields]] = {"policies": PolicyFields, "clusters": SweepClusterFields}

# What the value of a field must be, in words.
_MUST_BE = {
    "name": "a name: letters, digits, '.', '_' and '-', not '.' or '-' first",
    "policies": "a list of policies",
    "policies[]": "the name of a policy, or its name, order, period_s and options",
    "options": "a mapping of options to values",
    "clusters": "a list of clusters",
    "clusters[]": "RACKSxMACHINESxGPUS or a file",
    "cluster": "RACKSxMACHINESxGPUS or a file",
    "traces": "a list of presets and files",
    "traces[]": "a preset or a file",
    "loads": "a list of positive numbers",
    "loads[]": "a positive number",
    "seeds": f"a list of whole numbers, or how many there are (1 to {MAX_SEEDS})",
    "seeds[]": "a whole number, zero or more",
    "jobs": f"a whole number from 1 to {MAX_JOBS}",
    "network": "the name of a network model",
    "order": "the name of a queue order",
    "collective": "the name of a collective",
    "price_per_gpu_hour": "a number, zero or more",
    "period_s": "seconds, zero or more",
    "pat_gbps": "a positive number",
    "profiles": "a file with models",
}


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """All cells, in the order of the table, and what they refer to."""

    name: str
    cells: tuple[SweepCell, ...]
    inputs: SweepInputs


def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep with all the files that it names, or say in one line what is wrong, and where."""
    document = Document(Path(path), text_fields=frozenset({"name", "cluster"}))
    return _Builder(document, checked(document, SweepFields, _BELOW, _MUST_BE)).sweep()


class _Builder:
    """Lays out checked fields as cells."""

    def __init__(self, document: Document, fields: SweepFields) -> None:
        self._document = document
        self._fields = fields
        self._folder = document.path.parent
        self._clusters: dict[str, Cluster] = {}
        self._traces: dict[str, Trace] = {}

    def sweep(self) -> Sweep:
        """Return the sweep."""
        fields = self._fields
        with self._at("network"):
            network_model(fields.network)
        with self._at("collective"):
            _known("collective", fields.collective, COLLECTIVES)
        with self._at("order"):
            _known("queue order", fields.order, ORDERS)
        self._distinct("seeds", fields.seeds)
        self._distinct("loads", fields.loads or ())
        profiles, profiles_digest = library(), None
        if fields.profiles is not None:
            file = self._folder / fields.profiles
            with self._at("profiles"):
                profiles, profiles_digest = profiles.with_file(file), _file_digest(file)
        axes = (self._trace_axis(profiles), self._cluster_axis(), self._policy_axis())
        shared = {
            "cranny": VERSION,
            "network": fields.network,
            "collective": fields.collective,
            "price_per_gpu_hour": fields.price_per_gpu_hour,
            "profiles": profiles_digest,
        }
        count = len(fields.loads or (1,)) * len(fields.seeds) * len(axes[0]) * len(axes[1]) * len(axes[2])
        if count > MAX_CELLS:
            raise self._document.error((), f"has {count:,} cells, more than {MAX_CELLS:,}")
        cells = [
            SweepCell(
                {"trace": trace, "cluster": cluster, "load": load, "policy": policy, "seed": seed},
                {**shared, **of_trace, **of_cluster, **of_policy, "load": load, "seed": seed},
            )
            for (trace, of_trace), (cluster, of_cluster) in product(axes[0], axes[1])
            for load in fields.loads or (None if of_trace["jobs"] is None else DEFAULT_LOAD,)
            for (policy, of_policy), seed in product(axes[2], fields.seeds)
        ]
        inputs = SweepInputs(self._clusters, self._traces, profiles)
        return Sweep(fields.name or self._document.path.stem, tuple(cells), inputs)

    def _policy_axis(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what each policy is called, and what decides about it."""
        axis = []
        for index, entry in enumerate(self._fields.policies):
            steps = ("policies", index)
            with self._at(*steps, "name"):
                _known("policy", entry.name, TABLE)
            with self._at(*steps, "order"):
                _known("queue order", entry.order, ORDERS)
            with self._at(*steps, "options"):
                _try_options(entry)
            period_s = self._fields.period_s if entry.period_s is None else entry.period_s
            with self._at(*(() if entry.period_s is None else steps), "period_s"):
                decision_period_s(entry.name, period(period_s))
            order = entry.order or self._fields.order or TABLE[entry.name].order
            given = {"order": entry.order, "period_s": entry.period_s, **entry.options}
            settings: dict[str, Any] = {"policy": entry.name, "order": order, "options": entry.options}
            if period_s:
                settings["period_s"] = period_s
            axis.append((_label(entry.name, given), settings))
        self._distinct("policies", [label for label, _ in axis])
        return axis

    def _cluster_axis(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what each cluster is called, and its digest."""
        axis = []
        for index, entry in enumerate(self._fields.clusters):
            given = entry.model_dump(exclude={"cluster"})
            with self._at("clusters", index):
                cluster = self._cluster(entry)
            key = cluster_digest(cluster)
            self._clusters[key] = cluster
            axis.append((_label(entry.cluster, given), {"cluster": key}))
        self._distinct("clusters", [label for label, _ in axis])
        return axis

    def _cluster(self, entry: SweepClusterFields) -> Cluster:
        sizes = shape(entry.cluster)
        if sizes is not None:
            return Cluster.fat_tree(
                *sizes, entry.link_gbps or 100.0, entry.oversubscription or 1.0, pat_gbps=entry.pat_gbps
            )
        if entry.link_gbps or entry.oversubscription or entry.pat_gbps:
            raise InputError(
                "link_gbps, oversubscription and pat_gbps are for RACKSxMACHINESxGPUS; a file has its own"
            )
        return Cluster.from_file(self._folder / entry.cluster)

    def _trace_axis(self, profiles: ProfileLibrary) -> list[tuple[str, dict[str, Any]]]:
        """Return what each trace is called, and its preset and jobs, or its file's digest."""
        axis: list[tuple[str, dict[str, Any]]] = []
        known = presets()
        for index, name in enumerate(self._fields.traces):
            file = self._folder / name
            if name in known and not file.exists():
                axis.append((name, {"trace": name, "jobs": self._fields.jobs}))
                continue
            with self._at("traces", index):
                if not file.exists() and not file.suffix:
                    raise unknown("trace file or preset", name, known)
                trace = read_trace(file, profiles=profiles)
                key = _file_digest(file)
            self._traces[key] = trace
            axis.append((name, {"trace": key, "jobs": None}))
        self._distinct("traces", self._fields.traces)
        return axis

    def _distinct(self, field: str, values: Sequence[object]) -> None:
        """Refuse a value that occurs twice: the same cell would be in the table twice."""
        seen = set()
        for index, value in enumerate(values):
            if value in seen:
                raise self._document.error((field, index), f"{value} is given twice")
            seen.add(value)

    @contextmanager
    def _at(self, *steps: Step) -> Iterator[None]:
        """Say where in the sweep's file the error is."""
        try:
            yield
        except InputError as error:
            raise self._document.error(steps, str(error)) from None


def _known(kind: str, name: str | None, names: Collection[str]) -> None:
    if name is not None and name not in names:
        raise unknown(kind, name, names)


def _try_options(entry: PolicyFields) -> None:
    """Make the policy once, so that a wrong option is found before anything runs."""
    try:
        seeded_policy(entry.name, 0, entry.options)
    except InputError:
        raise
    except CrannyError:
        pass  # it needs an extra, which may be there where the cell runs


def _label(name: str, given: Mapping[str, object]) -> str:
    """Name something with what is set besides."""
    parts = [
        f"{key}={value:g}"
        if isinstance(value, float)
        else f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in given.items()
        if value is not None
    ]
    return f"{name} ({', '.join(parts)})" if parts else name


def _file_digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
