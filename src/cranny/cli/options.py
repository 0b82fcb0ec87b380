"""Options that several commands share, and how their values are read."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cranny.model.cluster import Cluster, shape
from cranny.model.collective import COLLECTIVES
from cranny.model.errors import InputError, unknown
from cranny.model.number import positive, seconds
from cranny.model.profile import library
from cranny.policies import TABLE

if TYPE_CHECKING:
    from cranny.model.profile import ProfileLibrary
    from cranny.workload.trace import Trace

DEFAULT_POLICIES = "titan,best-fit,consolidate-idle,fragments-first,tiresias"
DEFAULT_CLUSTER = "64x8x8"

TraceArgument = Annotated[
    str,
    typer.Argument(metavar="TRACE", help="A trace file, or a preset to generate from: philly, itp, acme."),
]
ClusterOption = Annotated[
    str,
    typer.Option("--cluster", "-c", help="A cluster file (YAML or JSON), or RACKSxMACHINESxGPUS."),
]
LinkOption = Annotated[float, typer.Option("--link-gbps", help="Uplink of each machine, for RACKSxMACHINESxGPUS.")]
OversubscriptionOption = Annotated[
    float, typer.Option("--oversubscription", help="Of each rack's uplink, for RACKSxMACHINESxGPUS.")
]
PatOption = Annotated[
    float | None,
    typer.Option("--pat-gbps", help="What each rack's switch can aggregate, for RACKSxMACHINESxGPUS."),
]
JobsOption = Annotated[int, typer.Option("--jobs", "-n", help="Jobs to generate from a preset.")]
LoadOption = Annotated[
    float, typer.Option("--load", help="Share of the cluster's GPUs that a generated trace asks for.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="For everything that is drawn.")]
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
        "--period", help="Seconds from one decision to the next (0: as the policy does, mostly at every event)."
    ),
]
PriceOption = Annotated[float, typer.Option("--price-per-gpu-hour", help="What a GPU-hour is sold for.")]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write a self-contained HTML page to this file.")
]
MapAtOption = Annotated[
    float | None, typer.Option("--map-at", help="Second at which the report's map of the cluster opens.")
]
ProfilesOption = Annotated[
    Path | None, typer.Option("--profiles", help="A JSON file with further models; see docs/profiles.md.")
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
    if pat_gbps is not None:
        positive(pat_gbps, "--pat-gbps")
    if sizes is None:
        return Cluster.from_file(spec)
    return Cluster.fat_tree(*sizes, link_gbps, oversubscription, pat_gbps=pat_gbps)


def check_report(report: Path | None, map_at_s: float | None) -> None:
    """Refuse a page that cannot be written before any work is done for it."""
    if map_at_s is not None:
        seconds(map_at_s, "--map-at")
    check_file(report, "--report")


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
    from cranny.workload.generate import generate_trace, presets
    from cranny.workload.read import read_trace

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
