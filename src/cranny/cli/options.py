"""Options that several commands share, and how their values are read."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cranny.model.cluster import Cluster, shape
from cranny.model.collective import COLLECTIVES
from cranny.model.errors import InputError, unknown
from cranny.model.profile import library
from cranny.model.validate import not_negative, positive, seconds, whole
from cranny.policies import TABLE, policy_class

if TYPE_CHECKING:
    from cranny.model.profile import ProfileLibrary
    from cranny.traces.trace import Trace

DEFAULT_POLICIES = "titan,best-fit,consolidate-idle,fragments-first,tiresias"
DEFAULT_CLUSTER = "64x8x8"
CLUSTER_FILES = frozenset({".yaml", ".yml", ".json"})
MAX_SEED = 2**63 - 1


def checked(check: Callable[..., Any], option: str, **bounds: int) -> Callable[[Any], Any]:
    """Return what checks the value of an option before anything is done, and names it as people type it."""

    def see(value: Any) -> Any:
        return None if value is None else check(value, f"{option}:", **bounds)

    return see


def _jobs(value: int) -> int:
    from cranny.traces.generate import MAX_JOBS

    return whole(value, "--jobs:", most=MAX_JOBS)


TraceArgument = Annotated[
    str,
    typer.Argument(metavar="TRACE", help="A trace file, or a preset to generate from: philly, itp, acme."),
]
ClusterOption = Annotated[
    str,
    typer.Option("--cluster", "-c", help="A cluster file (YAML or JSON), or RACKSxMACHINESxGPUS."),
]
LinkOption = Annotated[
    float,
    typer.Option(
        "--link-gbps",
        callback=checked(positive, "--link-gbps"),
        help="Uplink of each machine, for RACKSxMACHINESxGPUS.",
    ),
]
OversubscriptionOption = Annotated[
    float,
    typer.Option(
        "--oversubscription",
        callback=checked(positive, "--oversubscription"),
        help="Of each rack's uplink, for RACKSxMACHINESxGPUS.",
    ),
]
PatOption = Annotated[
    float | None,
    typer.Option(
        "--pat-gbps",
        callback=checked(positive, "--pat-gbps"),
        help="What each rack's switch can aggregate, for RACKSxMACHINESxGPUS.",
    ),
]
JobsOption = Annotated[int, typer.Option("--jobs", "-n", callback=_jobs, help="Jobs to generate from a preset.")]
LoadOption = Annotated[
    float,
    typer.Option(
        "--load",
        callback=checked(positive, "--load"),
        help="Share of the cluster's GPUs that a generated trace asks for.",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        callback=checked(whole, "--seed", least=0, most=MAX_SEED),
        help="For everything that is drawn.",
    ),
]
OrderOption = Annotated[
    str | None,
    typer.Option("--order", help="Queue order: fifo, sjf, las, backfill, knapsack (default: the policy's own)."),
]
NetworkOption = Annotated[str, typer.Option("--network", help="Network model: isolated, instant, steady, phases.")]
CollectiveOption = Annotated[
    str | None,
    typer.Option(
        "--collective", help=f"For jobs that name none: {', '.join(COLLECTIVES)} (default: halving-doubling)."
    ),
]
PeriodOption = Annotated[
    float,
    typer.Option(
        "--period",
        callback=checked(not_negative, "--period"),
        help="Seconds from one decision to the next (0: as the policy does, mostly at every event).",
    ),
]
PRICE = checked(not_negative, "--price-per-gpu-hour")
PriceOption = Annotated[
    float, typer.Option("--price-per-gpu-hour", callback=PRICE, help="What a GPU-hour is sold for.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write a self-contained HTML page to this file.")
]
MapAtOption = Annotated[
    float | None,
    typer.Option(
        "--map-at",
        callback=checked(seconds, "--map-at"),
        help="Second at which the report's map of the cluster opens.",
    ),
]
ProfilesOption = Annotated[
    Path | None, typer.Option("--profiles", help="A JSON file with further models; see docs/use/profiles.md.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An option of the policy, such as phase_budget_s=0.5."),
]
EachSettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="An option of those of the policies that know it, such as elastic=4."
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help="Format of the file, such as philly or sacct (default: found by content).",
        show_default=False,
    ),
]
StrictOption = Annotated[
    bool | None,
    typer.Option(
        "--strict/--no-strict",
        help="Refuse a file for a row that cannot be used, or leave such rows out and count them "
        "(default: strict for our own formats only).",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def read_cluster(
    spec: str, link_gbps: float = 100.0, oversubscription: float = 1.0, pat_gbps: float | None = None
) -> Cluster:
    """Read a cluster file, or build RACKSxMACHINESxGPUS."""
    sizes = shape(spec)
    if sizes is None:
        if not spec or not (Path(spec).exists() or Path(spec).suffix.lower() in CLUSTER_FILES):
            raise InputError(f"--cluster: must be a file or RACKSxMACHINESxGPUS, such as 8x8x8, not {spec!r}")
        return Cluster.from_file(spec)
    try:
        return Cluster.fat_tree(*sizes, link_gbps, oversubscription, pat_gbps=pat_gbps)
    except InputError as error:
        raise InputError(f"--cluster: {error}") from None


def check_period(period_s: float, policies: Iterable[str]) -> None:
    """Refuse a time between decisions that is too short for the simulator, or for one of the policies."""
    from cranny.core.engine import LEAST_PERIOD_S
    from cranny.core.protocol import least_period_s

    for name in policies:
        least_s = max(LEAST_PERIOD_S, least_period_s(policy_class(name)))
        if 0 < period_s < least_s:
            raise InputError(f"--period: must be 0, or at least {least_s:g} s for {name}, not {period_s!r}")


@contextmanager
def named(*fields: str) -> Iterator[None]:
    """Name fields that others find wrong as the options that they were given by."""
    try:
        yield
    except InputError as error:
        field, _, problem = str(error).partition(" ")
        if field.rstrip(":") not in fields:
            raise
        raise InputError(f"--{field.rstrip(':')}: {problem}") from None


def check_file(file: Path | None, option: str) -> None:
    """Refuse a file that cannot be written because a folder or another file stands in its way."""
    if file is None:
        return
    if file.is_dir():
        raise InputError(f"{option}: {file}: is a folder, not a file")
    check_folder(file.parent, option)


def check_folder(folder: Path | None, option: str) -> None:
    """Refuse a folder that cannot be made because a file stands in its way."""
    if folder is not None:
        there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        if not there.is_dir():
            raise InputError(f"{option}: {there}: is a file, not a folder")


def read_profiles(path: Path | None) -> "ProfileLibrary":
    """Return the built-in models, and those of a file if one is given."""
    return library() if path is None else library().with_file(path)


def read_settings(settings: list[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value is JSON if it can be, and text otherwise."""
    read: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InputError(f"--set: must be NAME=VALUE, not {setting!r}")
        try:
            read[name] = json.loads(value)
        except json.JSONDecodeError:
            read[name] = value
    return read


def read_or_generate(
    spec: str,
    cluster: Cluster,
    jobs: int,
    load: float,
    seed: int,
    profiles: "ProfileLibrary | None" = None,
    *,
    trace_format: str = "auto",
    strict: bool | None = None,
) -> "Trace":
    """Read a trace file, or generate from a preset to load the cluster as wanted."""
    from cranny.traces.generate import generate_trace, presets
    from cranny.traces.read import read_trace

    if spec in presets() and not Path(spec).exists():
        return generate_trace(spec, jobs=jobs, seed=seed, load=load, gpus=cluster.gpus)
    if not Path(spec).exists() and not Path(spec).suffix:
        raise unknown("trace file or preset", spec, presets())
    return read_trace(spec, trace_format, strict=strict, profiles=profiles)


def split_policies(names: str) -> list[str]:
    """Split a list of policy names and check each."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in TABLE:
            raise unknown("policy", name, TABLE)
    if not chosen:
        raise InputError("no policy was given")
    return list(dict.fromkeys(chosen))
