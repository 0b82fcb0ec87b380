"""`cranny serve`: the service that accepts jobs, places them and runs them."""

import contextlib
import logging
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cranny.cli import options
from cranny.cli.console import print_json, say, warn
from cranny.model.errors import InputError

if TYPE_CHECKING:
    from cranny.service.auth import Authenticator
    from cranny.service.limits import Limits
    from cranny.service.server import ListenAddress
    from cranny.service.service import Service

DEFAULT_PORT = 8741  # unassigned, and not used by a well-known tool of the field (8265 is Ray's dashboard)

DatabaseOption = Annotated[
    str | None,
    typer.Option("--database", help="A SQLite file, or postgresql://... (default: log.db in the folder)."),
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of job logs and the database (default: ~/.local/state/cranny)."),
]


def serve(
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            help="A cluster file, or RACKSxMACHINESxGPUS; all its machines are simulated on this one "
            "(default: this machine).",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-p", help="See `cranny policies` (default: the last one used, else titan)."),
    ] = None,
    order: options.OrderOption = None,
    period: options.PeriodOption = 0.0,
    policy_options: options.SettingsOption = None,
    recommend_only: Annotated[
        bool, typer.Option("--recommend-only", help="Decide and log recommendations, but start no jobs.")
    ] = False,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 for any free port.")] = DEFAULT_PORT,
    database: DatabaseOption = None,
    folder: FolderOption = None,
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="Certificate (PEM) to serve https with.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", help="Private key of the certificate.")] = None,
    jobs_per_user: Annotated[
        int, typer.Option("--jobs-per-user", min=1, help="Limit of unfinished jobs per user.")
    ] = 10_000,
    as_json: options.JsonOption = False,
) -> None:
    """Accept jobs, let a policy place them, run them on this machine, and explain decisions.

    Example: cranny serve --cluster 1x4x8 --policy titan
    """
    needs_service()
    from cranny.service.limits import Limits
    from cranny.service.server import ListenAddress

    setting = None
    if policy is not None:
        given = options.read_settings(policy_options)
        setting = {"name": policy, "order": order, "period_s": period, "options": given}
    elif order is not None or period or policy_options:
        raise InputError("--order, --period and --set need --policy")
    if (certificate is None) != (key is None):
        raise InputError("--tls-certificate and --tls-key must be given together")
    if certificate is not None and key is not None:
        check_pair(certificate, key)
    limits = Limits(jobs_per_user=jobs_per_user)
    service = _build(cluster, folder, database, setting, limits, host, recommend_only=recommend_only)
    _run(service, ListenAddress(host, port, certificate, key), as_json=as_json)


def _build(
    cluster: str | None,
    folder: Path | None,
    database: str | None,
    setting: dict[str, Any] | None,
    limits: "Limits",
    host: str,
    *,
    recommend_only: bool,
) -> "tuple[Service, Authenticator]":
    """Return the service and its authenticator."""
    from cranny.backends.local import LocalBackend
    from cranny.service.auth import Authenticator, is_loopback
    from cranny.service.server_file import state_folder
    from cranny.service.service import Service
    from cranny.service.store import EventStore

    kept = (folder or state_folder()).absolute()
    options.check_folder(kept, "--folder")
    kept.mkdir(parents=True, exist_ok=True, mode=0o700)
    built = options.read_cluster(cluster) if cluster is not None else None
    backend = LocalBackend(built) if built is not None else LocalBackend.this_machine()
    store = EventStore(database or str(kept / "log.db"))
    authenticator = Authenticator(store, loopback=is_loopback(host))
    runs = None if recommend_only else backend
    return Service(store, runs, kept, cluster=backend.nodes(), policy=setting, limits=limits), authenticator


def _run(parts: "tuple[Service, Authenticator]", address: "ListenAddress", *, as_json: bool) -> None:
    """Serve until the process is ended; jobs keep running."""
    from cranny.service.server import serve as run
    from cranny.service.server_file import ServerAddress, published, state_folder

    logging.basicConfig(level=logging.WARNING, format="cranny: %(message)s")
    service, authenticator = parts
    service.start()
    with contextlib.ExitStack() as last:
        last.callback(service.close)

        def started(url: str) -> None:
            token = authenticator.process_token(_user()) if authenticator.loopback else None
            for folder in {state_folder(), service.folder}:
                last.enter_context(published(folder, ServerAddress(url, token)))
            _announce(url, authenticator, service.scheduler.cluster.describe(), as_json=as_json)

        run(service, authenticator, address, started)


def _announce(url: str, authenticator: "Authenticator", about: str, *, as_json: bool) -> None:
    """Print the URL of the service, and how to log in."""
    from cranny.service.auth import Caller

    link = url
    if authenticator.loopback and not authenticator.has_tokens:
        link = f"{url}/login?code={authenticator.one_time_code(Caller(_user(), 'admin'))}"
    if as_json:
        print_json({"url": url, "link": link, "cluster": about})
        return
    say(f"cranny serves {about}", f"open  {link}")
    if link != url:
        say("      (login link as admin, valid once; other users need a token: cranny token create)")
    if not authenticator.loopback and url.startswith("http:"):
        warn("tokens are sent unencrypted without --tls-certificate")


def _user() -> str:
    return os.environ.get("USER") or "admin"


def needs_service() -> None:
    """Raise with what to install if the libraries of the service are missing."""
    from importlib.util import find_spec

    missing = [
        name for name in ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client", "httpx") if not find_spec(name)
    ]
    if missing:
        raise InputError(f"this needs {missing[0]!r}: install cranny with its extra 'service'")


def check_pair(certificate: Path, key: Path) -> None:
    """Refuse an unusable certificate or private key, with one line that names the file and the reason."""
    for option, path, kind in (
        ("--tls-certificate", certificate, "CERTIFICATE"),
        ("--tls-key", key, "PRIVATE KEY"),
    ):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{option}: {path}: {error.strerror}") from None
        if f"{kind}-----".encode() not in content:
            raise InputError(f"{option}: {path}: contains no {kind.lower()} in PEM format")

    def locked() -> NoReturn:
        raise InputError(f"--tls-key: {key}: is encrypted with a password; give an unencrypted key")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, locked)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(f"--tls-key: {key}: does not match {certificate}") from None
        raise InputError(f"{_culprit(certificate, key)}: is damaged") from None


def _culprit(certificate: Path, key: Path) -> str:
    """Name the damaged file: the key, if the certificate alone can be read."""
    try:
        ssl.create_default_context(cafile=str(certificate))
    except (ssl.SSLError, ValueError):
        return f"--tls-certificate: {certificate}"
    return f"--tls-key: {key}"
