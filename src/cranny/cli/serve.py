"""`cranny serve`: the service that accepts jobs, places them and runs them."""

import contextlib
import gc
import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import parse_qs, urlsplit

import typer

from cranny.cli import completion, options
from cranny.cli.console import PrintableFormatter, print_json, say, warn
from cranny.cli.interrupt import takes_its_time
from cranny.cli.options import option
from cranny.cli.serve_local import LocalOptions
from cranny.cli.serve_slurm import SlurmOptions
from cranny.model.errors import InputError, MissingExtraError
from cranny.policies import DEFAULT_POLICY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cranny.service.auth import Authenticator
    from cranny.service.oidc_login import OidcLogin
    from cranny.service.oidc_provider import OidcProvider
    from cranny.service.server import ListenAddress
    from cranny.service.service import Service

DEFAULT_PORT = 8741  # unassigned, and not used by a well-known tool of the field (8265 is Ray's dashboard)

DAY_S = 86_400.0
SHARED_FOLDER = Path("/var/lib/cranny")  # of a service whose jobs run under the accounts of their users
POLICY_HELP = f"See `cranny policies` (default: the last one used, else {DEFAULT_POLICY})."
DATABASE_HELP = "A SQLite file, or postgresql://... without a password (default: log.db in the folder)."


def without_password(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Refuse a password on the command line, which every user of the machine can read."""
    source = ctx.get_parameter_source(param.name or "")
    if value is not None and "://" in value and (source is None or source.name == "COMMANDLINE"):
        parts = urlsplit(value)
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise InputError(
                "--database: every user of this machine can read a password on the command line: leave it out and "
                "give it in ~/.pgpass or PGPASSWORD, or give `cranny serve` the whole URL in CRANNY_DATABASE"
            )
    return value


DatabaseOption = Annotated[str | None, option("--database", DATABASE_HELP, callback=without_password)]
ServedDatabaseOption = Annotated[
    str | None, option("--database", DATABASE_HELP, callback=without_password, envvar="CRANNY_DATABASE")
]
FolderOption = Annotated[
    Path | None,
    option(
        "--folder",
        "Folder of job logs and the database (default: ~/.local/state/cranny, with --accounts /var/lib/cranny).",
    ),
]

ClusterOption = Annotated[
    str | None,
    option(
        "--cluster",
        "A cluster file, or RACKSxMACHINESxGPUS; all its machines are simulated on this one "
        "(default: this machine). With --backend slurm: a cluster file with the speeds of its links.",
        short="-c",
    ),
]
HostIdOption = Annotated[
    str | None,
    option(
        "--host-id",
        "By what this host is known if its name changes, as in a container (default: machine id and name).",
        envvar="CRANNY_HOST_ID",
    ),
]
RecentOption = Annotated[
    int, option("--recent-jobs", "How many jobs that are over stay in memory and in lists.", min=1)
]
KeepOption = Annotated[
    float | None,
    option(
        "--keep-days",
        "Move events that are older to files in the folder `archive` (default: keep them in the database).",
        min=0,
    ),
]
RightsOption = Annotated[
    Path | None, option("--rights", "A file that says which priorities, queues and quotas users have.")
]


@dataclass
class Listening:
    """Where the service listens, and by which names it is reached."""

    host: Annotated[str, option("--host", "Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, option("--port", "0 for any free port.", min=0, max=65535)] = DEFAULT_PORT
    certificate: Annotated[Path | None, option("--tls-certificate", "Certificate (PEM) to serve https with.")] = (
        None
    )
    key: Annotated[Path | None, option("--tls-key", "Private key of the certificate.")] = None
    names: Annotated[
        list[str] | None, option("--host-name", "A further host name by which clients reach the service.")
    ] = None
    hsts_days: Annotated[
        int,
        option("--hsts-days", "With TLS: how long browsers use only https for this host, on all ports.", min=0),
    ] = 365

    also_at: Annotated[
        list[str] | None,
        option("--also-at", "URL of another service on the same database, where the dashboard goes on."),
    ] = None

    oidc: Annotated[
        Path | None, option("--oidc", "A file that names an OpenID provider, for sign-in to the dashboard.")
    ] = None

    def provider(self) -> "OidcProvider | None":
        """Return the provider that users sign in with, if there is one; it is not asked anything yet."""
        if self.oidc is None:
            return None
        check_libraries("--oidc", "authlib", "joserfc")
        from cranny.service.clock import wall_clock
        from cranny.service.oidc_provider import OidcProvider
        from cranny.service.oidc_settings import read_client_secret, read_oidc

        settings = read_oidc(self.oidc)
        secret = read_client_secret(settings, self.oidc.parent)
        return OidcProvider(settings, secret, wall_clock)

    def address(self, sign_in: "OidcLogin | None") -> "ListenAddress":
        """Return where the server listens."""
        from cranny.service.server import ListenAddress

        names, others = tuple(self.names or ()), tuple(map(_origin, self.also_at or ()))
        if sign_in is not None:  # the provider sends browsers there
            names = (*names, urlsplit(sign_in.origin).hostname or "")
        hsts_s = self.hsts_days * 86_400
        return ListenAddress(self.host, self.port, self.certificate, self.key, names, hsts_s, others)


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL, which must have nothing else."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        origin = f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port is not None else "")
    except ValueError:
        origin = ""
    if url.removesuffix("/") != origin or not parts.hostname or parts.scheme not in {"http", "https"}:
        raise InputError(f"--also-at: must be like https://host:8741, not {url!r}")
    if not all(each.isalnum() or each in "-._~[]:/" for each in origin):  # it becomes a part of a header
        raise InputError(f"--also-at: must be like https://host:8741, not {url!r}")
    return origin


@options.expand_options(LocalOptions, "local")
@options.expand_options(SlurmOptions, "slurm")
@options.expand_options(Listening, "listening")
def serve(
    cluster: ClusterOption = None,
    policy: Annotated[
        str | None,
        option("--policy", POLICY_HELP, short="-p", autocompletion=completion.policies),
    ] = None,
    order: options.OrderOption = None,
    period: options.PeriodOption = 0.0,
    policy_options: options.SettingsOption = None,
    recommend_only: Annotated[
        bool, option("--recommend-only", "Decide and log recommendations, but start no jobs.")
    ] = False,
    database: ServedDatabaseOption = None,
    folder: FolderOption = None,
    host_id: HostIdOption = None,
    rights: RightsOption = None,
    jobs_per_user: Annotated[int, option("--jobs-per-user", "Limit of unfinished jobs per user.", min=1)] = 10_000,
    recent_jobs: RecentOption = 2_000,
    keep_days: KeepOption = None,
    as_json: options.JsonOption = False,
    *,
    local: LocalOptions,
    slurm: SlurmOptions,
    listening: Listening,
) -> None:
    """Accept jobs, let a policy place them, run them on this machine or through Slurm, and explain decisions.

    Example: cranny serve --cluster 1x4x8 --policy cranny
    """
    needs_service()
    kept = _kept(folder, shared=local.shared)
    with _loading():
        from cranny.service.auth import Authenticator, is_loopback
        from cranny.service.limits import Limits
        from cranny.service.locations import Location
        from cranny.service.oidc_login import OidcLogin
        from cranny.service.service import Service
        from cranny.service.standby import open_as_writer
        from cranny.service.user_rights import read_rights

    setting = _setting(policy, order, period, policy_options)
    options.check_folder(kept, "--folder")
    jobs = slurm if slurm.chosen(local) else local
    runs = jobs.build(cluster, kept, recommend_only=recommend_only)
    allowed = None if rights is None else read_rights(rights)
    provider = listening.provider()
    check_pair(listening.certificate, listening.key)  # with the rights that the service has from here on
    store = open_as_writer(database or str(kept / "log.db"), warn)
    authenticator = Authenticator(store, loopback=is_loopback(listening.host))
    sign_in = None if provider is None else OidcLogin(provider, authenticator)
    limits = Limits(
        jobs_per_user=jobs_per_user,
        check_user=runs.check_user,
        recent_jobs=recent_jobs,
        keep_events_s=None if keep_days is None else keep_days * DAY_S,
        keep_logs_s=None if local.keep_logs_days is None else local.keep_logs_days * DAY_S,
    )
    service = Service(
        store,
        runs.backend,
        kept,
        cluster=runs.cluster,
        policy=setting,
        limits=limits,
        rights=allowed,
        location=Location.here(kept, host_id),
        source=runs.source,
    )
    _run(service, authenticator, listening.address(sign_in), sign_in, shared=local.shared, as_json=as_json)


def _kept(chosen: Path | None, *, shared: bool) -> Path:
    """Return the folder of the service; what is compiled is kept there too, if it cannot be beside the programs.

    An account that may not write there, as that of a unit of systemd, may have no home either.
    """
    from cranny.service.server_file import state_folder

    folder = (chosen or (SHARED_FOLDER if shared else state_folder())).absolute()
    if not os.access(Path(__file__).parents[1], os.W_OK):
        with contextlib.suppress(OSError):  # that the folder cannot be made is reported later
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.environ.setdefault("NUMBA_CACHE_DIR", str(folder / "compiled"))
    return folder


@contextlib.contextmanager
def _loading() -> "Iterator[None]":
    """Look for no garbage while much is loaded that stays: it would be looked at again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _setting(
    policy: str | None, order: str | None, period: float, policy_options: list[str] | None
) -> dict[str, Any] | None:
    """Return the policy setting that was asked for; None for the one that was used last."""
    if policy is not None:
        given = options.read_settings(policy_options)
        return {"name": policy, "order": order, "period_s": period, "options": given}
    if order is not None or period or policy_options:
        raise InputError("--order, --period and --set need --policy")
    return None


def _run(
    service: "Service",
    authenticator: "Authenticator",
    address: "ListenAddress",
    sign_in: "OidcLogin | None",
    *,
    shared: bool,
    as_json: bool,
) -> None:
    """Serve until the process is ended; jobs keep running. A shared service is not found in anyone's home."""
    with _loading():
        from cranny.service.auth import Caller
        from cranny.service.server import serve as run
        from cranny.service.server_file import ServerAddress, published, state_folder

    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("cranny: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    user, about = os.environ.get("USER") or "admin", service.scheduler.cluster.describe()
    with _loading():
        service.start()
    with takes_its_time(), contextlib.ExitStack() as last:
        last.callback(service.close)
        if service.scheduler.mode == "recommend":
            from cranny.service.weekly_report import WeeklyReports

            made_with = lambda: str(service.scheduler.records.policy["name"])  # noqa: E731
            known = service.scheduler.cluster
            last.enter_context(WeeklyReports(service.store, service.folder, made_with, service.now_s, known))

        if service.limits.keep_logs_s is not None:
            from cranny.service.log_retention import LogRetention

            last.enter_context(LogRetention(service, service.limits.keep_logs_s))

        def started(url: str) -> None:
            token = authenticator.process_token(user) if authenticator.loopback else None
            for folder in {service.folder} if shared else {state_folder(), service.folder}:
                last.enter_context(published(folder, ServerAddress(url, token)))
            link = url
            if authenticator.loopback and not authenticator.has_tokens:
                link = f"{url}/#/login?code={authenticator.one_time_code(Caller(user, 'admin'))}"
            if as_json:
                print_json({"url": url, "link": link, "cluster": about})
                return
            say(f"cranny serves {about}", f"open  {link}")
            if link != url:
                say("      (login link as admin, valid once; other users need a token: cranny token create)")
            if not authenticator.loopback and url.startswith("http:"):
                warn("tokens are sent unencrypted without --tls-certificate")

        run(service, authenticator, address, started, sign_in)


def needs_service() -> None:
    """Raise with what to install if the libraries of the service are missing."""
    check_libraries("the service", "fastapi", "uvicorn", "sqlalchemy", "prometheus_client", "httpx")


def check_libraries(what: str, *names: str) -> None:
    """Raise with what to install if a library is missing that something needs."""
    from importlib.util import find_spec

    for name in names:
        if not find_spec(name):
            raise MissingExtraError(what, name)


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """Refuse an unusable certificate or private key, with one line that names the file and the reason."""
    if (certificate is None) != (key is None):
        raise InputError("--tls-certificate and --tls-key must be given together")
    if certificate is None or key is None:
        return
    for name, path, kind in (("certificate", certificate, "CERTIFICATE"), ("key", key, "PRIVATE KEY")):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"--tls-{name}: {path}: {error.strerror}") from None
        if f"{kind}-----".encode() not in content:
            raise InputError(f"--tls-{name}: {path}: contains no {kind.lower()} in PEM format")

    def locked() -> NoReturn:
        raise InputError(f"--tls-key: {key}: is encrypted with a password; give an unencrypted key")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, locked)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(f"--tls-key: {key}: does not match {certificate}") from None
        culprit = f"--tls-key: {key}"
        try:  # the key is damaged if the certificate alone can be read
            ssl.create_default_context(cafile=str(certificate))
        except (ssl.SSLError, ValueError):
            culprit = f"--tls-certificate: {certificate}"
        raise InputError(f"{culprit}: is damaged") from None
