"""`cranny log`: the event log of a service: verified, archived, backed up and restored without the service."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cranny.cli import options
from cranny.cli.console import print_json, say, warn
from cranny.cli.options import argument, option
from cranny.cli.serve import DAY_S, DatabaseOption, needs_service, without_password
from cranny.cli.typer_errors import Commands
from cranny.cli.window_options import length_s
from cranny.model.validate import counted

if TYPE_CHECKING:
    from cranny.service.store import EventStore

app = Commands(help="Verify, archive, back up and restore the event log of a service.")

LogFolderOption = Annotated[
    Path | None, option("--folder", "The --folder of the service (default: ~/.local/state/cranny).")
]


@app.command()
def verify(
    database: DatabaseOption = None, folder: LogFolderOption = None, as_json: options.JsonOption = False
) -> None:
    """Verify that no event of the log is missing, altered or unknown; exit code 1 if one is.

    Example: cranny log verify --database postgresql://cranny@db/cranny
    """
    needs_service()
    from cranny.service.log_check import verify_log
    from cranny.service.server_file import state_folder

    kept = folder or state_folder()
    with closing(_opened(database, kept)) as store:
        found = verify_log(store, kept)
    if as_json:
        print_json(
            {"ok": not found.problem, "events": found.events, **found.head._asdict(), "problem": found.problem}
        )
    elif found.problem:
        warn(found.describe())
    else:
        say(found.describe())
    if found.problem:
        raise typer.Exit(1)


@app.command()
def archive(
    older_than: Annotated[
        float, option("--older-than", "Days; events that are younger stay in the database.", min=0)
    ] = 30.0,
    to: Annotated[Path | None, option("--to", "Folder of the archive (default: `archive` in the folder).")] = None,
    database: DatabaseOption = None,
    folder: LogFolderOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Move old events of jobs that are over to a file; for a service that runs, see `cranny serve --keep-days`.

    Example: cranny log archive --older-than 90
    """
    from cranny.service.clock import wall_clock

    needs_service()
    from cranny.service.log_archive import archive as move
    from cranny.service.server_file import state_folder

    kept, now_s = folder or state_folder(), wall_clock()
    with closing(_opened(database, kept)) as store:
        found = move(store, to or kept / "archive", now_s - older_than * DAY_S, now_s)
    if as_json:
        moved = (
            None
            if found is None
            else {"file": str(found.path), "first": found.begin.seq + 1, "last": found.head.seq}
        )
        print_json({"archived": moved})
    elif found is None:
        say("nothing to archive: no events are that old and covered by a snapshot")
    else:
        say(f"events {found.begin.seq + 1:,} to {found.head.seq:,} are in {found.path}")


@app.command()
def backup(
    file: Annotated[Path, argument("FILE", "The file to write, such as cranny.jsonl.gz.")],
    database: DatabaseOption = None,
    folder: LogFolderOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write event log and tokens to a file; a service may run meanwhile.

    Example: cranny log backup cranny.jsonl.gz
    """
    needs_service()
    from cranny.service.log_file import backup as write
    from cranny.service.log_file import verify_log_file
    from cranny.service.server_file import state_folder

    with closing(_opened(database, folder or state_folder())) as store:
        header = write(store, file)
    verify_log_file(file)
    _show_file(file, header.head.seq, "holds the log up to", as_json=as_json)


@app.command()
def restore(
    file: Annotated[Path, argument("FILE", "A file that `cranny log backup` has written.")],
    database: Annotated[
        str,
        option(
            "--database",
            "An empty database: a new SQLite file, or postgresql://... without a password.",
            callback=without_password,
        ),
    ],
    as_json: options.JsonOption = False,
) -> None:
    """Fill an empty database from a backup.

    Example: cranny log restore cranny.jsonl.gz --database new.db
    """
    needs_service()
    from cranny.service.log_file import restore as fill
    from cranny.service.log_file import verify_log_file
    from cranny.service.store import EventStore

    verify_log_file(file)  # before the database is created
    with closing(EventStore(database)) as store:
        header = fill(store, file)
    _show_file(file, header.head.seq, "was restored up to", as_json=as_json)


@app.command()
def jobs(
    file: Annotated[Path, argument("FILE", "The file to write, such as jobs.txt.")],
    since: Annotated[str, option("--since", "How far back, such as 7d (default: all).", metavar="TIME")] = "",
    database: DatabaseOption = None,
    folder: LogFolderOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write the jobs of the log as a log for `cranny what-if`: when they came, and where and when they ran.

    Example: cranny log jobs jobs.txt --since 30d
    """
    needs_service()
    from cranny.service.clock import wall_clock
    from cranny.service.job_log import logged_jobs
    from cranny.service.server_file import state_folder

    options.check_file(file, "FILE")
    since_s = wall_clock() - length_s(since, "--since") if since else 0.0
    with closing(_opened(database, folder or state_folder())) as store:
        found = logged_jobs((event.parsed() for event in store.stored()), since_s)
    file.write_text(found.text, encoding="utf-8")
    if as_json:
        print_json({"file": str(file), "rows": found.rows, "cluster": found.cluster.describe()})
    else:
        say(f"{file} has {counted(found.rows, 'run')} on {found.cluster.describe()}")


def _show_file(file: Path, seq: int, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(file), "seq": seq})
    else:
        say(f"{file} {what} event {seq:,}")


def _opened(database: str | None, folder: Path) -> "EventStore":
    """Open the database of a service, which must exist."""
    from cranny.service.store import EventStore

    return EventStore(database or str(folder / "log.db"), only_read=True)
