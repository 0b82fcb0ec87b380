"""Options that several commands share, and how their values are read."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from cranny.cli import completion
from cranny.model.cluster import Cluster, shape
from cranny.model.collective import COLLECTIVES, DEFAULT_COLLECTIVE
from cranny.model.errors import InputError, unknown
from cranny.model.profile import library
from cranny.model.validate import not_negative, positive, seconds, whole
from cranny.policies import COMPARED, TABLE, policy_class

if TYPE_CHECKING:
    from cranny.model.profile import ProfileLibrary
    from cranny.scenario import Scenario
    from cranny.traces.trace import Trace

DEFAULT_POLICIES = ",".join(COMPARED)
DEFAULT_CLUSTER = "64x8x8"
FROM_SLURM = "slurm"  # in place of a cluster: read from the Slurm that answers here
FROM_LOG = "from-log"  # in place of a cluster: guessed from where the log says that jobs ran
CLUSTER_FILES = frozenset({".yaml", ".yml", ".json"})
MAX_SEED = 2**63 - 1
REQUIRED = object()  # in place of a default


def argument(name: str, text: str, **given: Any) -> Any:
    """Declare an argument with its help."""
    return typer.Argument(metavar=name, help=text, **given)


def option(name: str, text: str, check: Callable[..., Any] | None = None, *, short: str = "", **given: Any) -> Any:
    """Declare an option with its help.

    Its value is checked before anything is done: by `check`, which gets the option as people type it, or by Typer.
    """
    names = (name, short) if short else (name,)
    if check is None:
        return typer.Option(*names, help=text, **given)

    def see(value: Any) -> Any:
        return None if value is None else check(value, f"{name}:", **given)

    return typer.Option(*names, callback=see, help=text)


def _job_count(value: int, name: str) -> int:
    from cranny.traces.generate import MAX_JOBS

    return whole(value, name, most=MAX_JOBS)


TraceArgument = Annotated[
    str,
    argument(
        "TRACE",
        "A trace file, or a preset to generate from: philly, itp, acme.",
        autocompletion=completion.presets,
    ),
]
ClusterOption = Annotated[
    str, option("--cluster", "A cluster file (YAML or JSON), RACKSxMACHINESxGPUS, slurm, or from-log.", short="-c")
]
LinkOption = Annotated[float, option("--link-gbps", "Uplink of each machine, for RACKSxMACHINESxGPUS.", positive)]
OversubscriptionOption = Annotated[
    float, option("--oversubscription", "Of each rack's uplink, for RACKSxMACHINESxGPUS.", positive)
]
PatOption = Annotated[
    float | None, option("--pat-gbps", "What each rack's switch can aggregate, for RACKSxMACHINESxGPUS.", positive)
]
JobsOption = Annotated[int, option("--jobs", "Jobs to generate from a preset.", _job_count, short="-n")]
LoadOption = Annotated[
    float, option("--load", "Share of the cluster's GPUs that a generated trace asks for.", positive)
]
SeedOption = Annotated[int, option("--seed", "Of the random numbers.", whole, least=0, most=MAX_SEED)]
OrderOption = Annotated[
    str | None,
    option(
        "--order",
        "Queue order: fifo, sjf, srtf, las, backfill, knapsack (default: the policy's own).",
        autocompletion=completion.orders,
    ),
]
NetworkOption = Annotated[
    str,
    option("--network", "Network model: isolated, instant, steady, phases.", autocompletion=completion.networks),
]
CollectiveOption = Annotated[
    str | None,
    option(
        "--collective",
        f"For jobs that name none: {', '.join(COLLECTIVES)} (default: {DEFAULT_COLLECTIVE}).",
        autocompletion=completion.collectives,
    ),
]
PERIOD_HELP = "Seconds from one decision to the next (0: as the policy does, mostly at every event)."
PeriodOption = Annotated[float, option("--period", PERIOD_HELP, not_negative)]
RestartOption = Annotated[
    float,
    option("--restart", "Seconds that a stopped or moved job loses, unless the log says otherwise.", seconds),
]
PriceOption = Annotated[float, option("--price-per-gpu-hour", "What a GPU-hour is sold for.", not_negative)]
ReportOption = Annotated[Path | None, option("--report", "Write a self-contained HTML page to this file.")]
MapAtOption = Annotated[
    float | None, option("--map-at", "Second at which the report's map of the cluster opens.", seconds)
]
ProfilesOption = Annotated[
    Path | None, option("--profiles", "A JSON file with further models; see docs/use/profiles.md.")
]
SET_HELP = "An option of the policy (of those of several that have it), such as elastic=4."
SettingsOption = Annotated[list[str] | None, option("--set", SET_HELP, metavar="NAME=VALUE")]
FORMAT_HELP = "Format of the file, such as philly or sacct (default: found by content)."
FormatOption = Annotated[str, option("--format", FORMAT_HELP, show_default=False)]
STRICT_HELP = (
    "Refuse a file for a row that cannot be used, or skip and count such rows "
    "(default: strict for our own formats only)."
)
StrictOption = Annotated[bool | None, option("--strict/--no-strict", STRICT_HELP, show_default=False)]
COUNT_PARTS_HELP = (
    "Count each MIG instance or shard of a log as a GPU; otherwise jobs on parts of GPUs are skipped."
)
CountPartsOption = Annotated[bool, option("--count-parts", COUNT_PARTS_HELP)]
ProcessesOption = Annotated[
    int | None, option("--processes", "At once; as many as there are cores if not given.", min=1)
]
PolicyOption = Annotated[
    str, option("--policy", "See `cranny policies`.", short="-p", autocompletion=completion.policies)
]
PoliciesOption = Annotated[
    str,
    option(
        "--policies",
        "Names with commas between; see `cranny policies`.",
        short="-p",
        autocompletion=completion.policies,
    ),
]
UNKNOWN_TYPES_HELP = "Skip and count jobs that ask for a type of GPU that the cluster has not."
SkipUnknownTypesOption = Annotated[bool, option("--skip-unknown-types", UNKNOWN_TYPES_HELP)]
JsonOption = Annotated[bool, option("--json", "Print JSON for machines.")]


def read_cluster(
    spec: str,
    link_gbps: float = 100.0,
    oversubscription: float = 1.0,
    pat_gbps: float | None = None,
    links: Path | None = None,
) -> Cluster:
    """Read a cluster file, or build RACKSxMACHINESxGPUS, or ask Slurm, whose links are as fast as `links` says."""
    sizes = shape(spec)
    if spec == FROM_SLURM and not Path(spec).exists():
        from cranny.backends.slurm.slurm_cluster import read_slurm_cluster

        return read_slurm_cluster(links=None if links is None else Cluster.from_file(links))
    if links is not None:
        raise InputError("--links: goes with the cluster `slurm`; a cluster file has the speeds of its links")
    if spec == FROM_LOG and not Path(spec).exists():
        raise InputError("--cluster: from-log is only for commands that read a log")
    if sizes is None:
        if not spec or not (Path(spec).exists() or Path(spec).suffix.lower() in CLUSTER_FILES):
            raise InputError(f"--cluster: must be a file or RACKSxMACHINESxGPUS, such as 8x8x8, not {spec!r}")
        return Cluster.from_file(spec)
    try:
        return Cluster.fat_tree(*sizes, link_gbps, oversubscription, pat_gbps=pat_gbps)
    except InputError as error:
        raise InputError(f"--cluster: {error}") from None


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """The options of a scenario that commands share, as they are typed."""

    cluster: ClusterOption = DEFAULT_CLUSTER
    link_gbps: LinkOption = 100.0
    oversubscription: OversubscriptionOption = 1.0
    pat_gbps: PatOption = None
    jobs: JobsOption = 5000
    load: LoadOption = 0.8
    trace_format: FormatOption = "auto"
    strict: StrictOption = None
    count_parts: CountPartsOption = False
    order: OrderOption = None
    period: PeriodOption = 0.0
    network: NetworkOption = "isolated"
    collective: CollectiveOption = None
    seed: SeedOption = 0
    price: PriceOption = 1.0
    profiles: ProfilesOption = None
    policy_options: SettingsOption = None
    skip_unknown_types: SkipUnknownTypesOption = False

    def read_cluster(self) -> Cluster:
        """Read the cluster."""
        return read_cluster(self.cluster, self.link_gbps, self.oversubscription, self.pat_gbps)

    def read_trace(
        self,
        spec: str,
        cluster: Cluster,
        profiles: "ProfileLibrary",
        zone: str | None = None,
        *,
        attempts: bool = False,
    ) -> "Trace":
        """Read a trace file, or generate from a preset to load the cluster as wanted."""
        from cranny.traces.named_trace import named_trace

        return named_trace(
            spec,
            cluster.gpus,
            jobs=self.jobs,
            seed=self.seed,
            load=self.load,
            trace_format=self.trace_format,
            strict=self.strict,
            profiles=profiles,
            zone=zone,
            count_parts=self.count_parts,
            attempts=attempts,
        )

    def read_both(
        self,
        spec: str,
        profiles: "ProfileLibrary",
        zone: str | None = None,
        cut: "Callable[[Trace], Trace] | None" = None,
        *,
        attempts: bool = False,
    ) -> "tuple[Cluster, Trace]":
        """Read the cluster and the trace; with `from-log` the cluster is guessed from it before it is cut.

        A log that says where jobs ran says it of each attempt, so that with `from-log` it is read by attempt.
        """
        if self.cluster != FROM_LOG or Path(self.cluster).exists():
            cluster = self.read_cluster()
            jobs = self.read_trace(spec, cluster, profiles, zone, attempts=attempts)
            return cluster, jobs if cut is None else cut(jobs)
        from cranny.cluster_import.from_log import with_guessed_cluster
        from cranny.traces.read import read_trace

        if not Path(spec).exists():
            raise InputError(f"--cluster: from-log needs a log that says where jobs ran, and {spec!r} is no file")
        read = partial(read_trace, strict=self.strict, profiles=profiles, zone=zone, count_parts=self.count_parts)
        return with_guessed_cluster(read(spec, self.trace_format, attempts=True), cut)

    def scenario(
        self,
        trace: str,
        policies: Sequence[str],
        zone: str | None = None,
        cut: "Callable[[Trace], Trace] | None" = None,
        *,
        attempts: bool = False,
    ) -> "Scenario":
        """Check and read all that the options name, for the first of the policies that are to run.

        The trace is read in `zone` and then `cut`, if these are given; with `attempts` by attempt.
        """
        from cranny.core.engine import LEAST_PERIOD_S
        from cranny.core.protocol import least_period_s
        from cranny.scenario import Scenario

        for name in policies:
            least_s = max(LEAST_PERIOD_S, least_period_s(policy_class(name)))
            if 0 < self.period < least_s:
                problem = f"must be 0, or at least {least_s:g} s for {name}, not {self.period!r}"
                raise InputError(f"--period: {problem}")
        models = read_profiles(self.profiles)
        cluster, jobs = self.read_both(trace, models, zone, cut, attempts=attempts)
        return Scenario(
            cluster,
            jobs,
            policies[0],
            self.network,
            self.seed,
            order=self.order,
            collective=self.collective,
            options=read_settings(self.policy_options),
            profiles=models,
            period_s=self.period,
            price_per_gpu_hour=self.price,
            skip_unknown_types=self.skip_unknown_types,
            command=command_line(),
        )


def scenario_options(*without: str, **changed: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command that takes `shared: ScenarioOptions` have them on its command line, where `shared` stands."""
    return expand_options(ScenarioOptions, "shared", *without, **changed)


def expand_options(
    kind: type[Any], name: str, *without: str, **changed: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command have the fields of a dataclass on its command line, where the parameter `name` stands.

    Fields named by `without` keep their defaults; `changed` has other defaults, or `REQUIRED`.
    """
    hints = get_type_hints(kind, include_extras=True)
    shared = [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if default is REQUIRED else default,
            annotation=hints[each.name],
        )
        for each in fields(kind)
        if each.name not in without
        for default in (changed.get(each.name, each.default),)
    ]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            values = {each.name: given.pop(each.name) for each in shared}
            command(**given, **{name: kind(**values)})

        own = signature(command, eval_str=True).parameters.values()
        parameters = [
            each
            for parameter in own
            for each in (shared if parameter.name == name else [parameter.replace(kind=Parameter.KEYWORD_ONLY)])
        ]
        # Typer reads both.
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return with_options


def command_line() -> str:
    """Return the command line that reproduces this run."""
    return shlex.join(["cranny", *sys.argv[1:]])


@contextmanager
def named(*fields: str) -> Iterator[None]:
    """Name fields that are found wrong as the options that set them."""
    try:
        yield
    except InputError as error:
        field, _, problem = str(error).partition(" ")
        if field.rstrip(":") not in fields:
            raise
        raise InputError(f"--{field.rstrip(':').replace('_', '-')}: {problem}") from None


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


def read_settings(settings: Sequence[str] | None, named: str = "--set") -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value is JSON if it can be, and text otherwise."""
    read: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InputError(f"{named}: must be NAME=VALUE, not {setting!r}")
        try:
            read[name] = json.loads(value)
        except json.JSONDecodeError:
            read[name] = value
    return read


def split_policies(names: str) -> list[str]:
    """Split a list of policy names and check each."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in TABLE:
            raise unknown("policy", name, TABLE)
    if not chosen:
        raise InputError("no policy was given")
    return list(dict.fromkeys(chosen))
