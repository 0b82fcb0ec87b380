"""`cranny submit`, `jobs`, `watch`, `logs`, `cancel`, `plan`: jobs of a server."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cranny.cli import options, relative_time
from cranny.cli.client import ServerOption, ServiceClient, TokenOption
from cranny.cli.console import err, out, print_json
from cranny.cli.follow import changes, path_of, state, until_over, writes, written
from cranny.model.errors import CrannyError, InputError

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The id of a job, such as job-17.")]
MAX_KEY = 200  # characters
COLUMNS = ("job", "name", "user", "GPUs", "status", "submitted", "start", "where or why")
FLEXIBLE = frozenset({"name", "user", "where or why"})
LEAST_NAME, LEAST_LAST = 6, 16  # columns of a terminal for a name, and for where or why


def submit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A job file (YAML or JSON); see docs/use/service.md.")
    ],
    key: Annotated[
        str | None, typer.Option("--key", help="The same key and file again give the same job, not another.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 1 unless it is done.")] = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Submit a job.

    Example: cranny submit job.yaml --wait
    """
    from cranny.service.job_spec import read

    spec = read(file)
    if key is not None and not (1 <= len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise InputError(f"--key: must be 1 to {MAX_KEY} printable characters of ASCII, not {key[:MAX_KEY]!r}")
    remote = ServiceClient(server, token_file)
    with about(file):
        job = remote.send("POST", "/api/v1/jobs", spec, {"Idempotency-Key": key} if key else None)
    if wait:  # the job is named first, should the wait be broken off
        err.print(f"{job['id']} {state(job)}", soft_wrap=True, markup=False)
        job = until_over(remote, job["id"])
    if as_json:
        print_json(job)
    else:
        out.print(f"{job['id']} {state(job)}", soft_wrap=True, markup=False)
    if wait and job["status"] != "done":
        raise typer.Exit(1)


def jobs(
    status: Annotated[
        list[str] | None, typer.Option("--status", "-s", help="Only these, such as waiting or running.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only jobs of this user.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many, latest first.")
    ] = 50,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List jobs, the latest first; those that wait in the order of the queue if only they are asked for.

    Example: cranny jobs --status waiting --status running
    """
    remote = ServiceClient(server, token_file)
    with options.named("status", "user"):
        found = remote.get("/api/v1/jobs", status=status, user=user, limit=limit, newest=True)
    if as_json:
        print_json(found)
        return
    _show(found["jobs"])
    if found["total"] > len(found["jobs"]):
        out.print(f"{len(found['jobs'])} of {found['total']}; see --limit")


def _show(found: list[dict[str, Any]]) -> None:
    """Print a table of jobs, in 80 columns: when each was submitted and started, where it is or why it is not.

    Names of people's own are cut short, so that what the last column says is not broken within a word.
    """
    from rich.table import Table
    from rich.text import Text

    now = relative_time.now_s()
    rows = [COLUMNS, *(_row(job, now) for job in found)]
    widths = dict(zip(COLUMNS, (max(map(len, column)) for column in zip(*rows, strict=True)), strict=True))
    brief = sum(width for name, width in widths.items() if name not in FLEXIBLE) + 2 * len(COLUMNS)
    word = max(len(word) for *_, last in rows for word in last.split() or [""])
    spare = out.width - brief - max(word, LEAST_LAST)
    widths["user"] = min(widths["user"], 12, max(LEAST_NAME, spare // 3))
    widths["name"] = min(widths["name"], 20, max(LEAST_NAME, spare - widths["user"]))
    table = Table(box=None, header_style="bold")
    for name in COLUMNS:
        last = name == COLUMNS[-1]
        table.add_column(name, width=None if last else widths[name], no_wrap=not last, overflow="ellipsis")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    out.print(table)


def _row(job: dict[str, Any], now_s: float) -> tuple[str, ...]:
    """Return a job as a row of the table."""
    start = relative_time.ago(job["started_s"], now_s)
    if job["status"] == "waiting":  # also one that ran before
        start = relative_time.soon(job["predicted_start_s"], now_s) if job["predicted_start_s"] is not None else ""
    first, more = job["machines"][:1], len(job["machines"]) - 1
    where = " and ".join([*first, f"{more} more"] if more > 0 else first)
    why = job["reason"].removeprefix(f"{job['status']} ").removeprefix("with ")
    own = (job["id"], job["name"] or "", job["user"], str(job["gpus"]), job["status"])
    return (*own, relative_time.ago(job["submitted_s"], now_s), start, why or where)


def watch(
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Only this job, until it is over; how it ended if it is."),
    ] = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Print what changes as it happens.

    Example: cranny watch job-17
    """
    remote = ServiceClient(server, token_file)
    for kind, event in changes(remote, job_id):
        if as_json:
            _write(json.dumps(event) + "\n")
            continue
        rest = {k: v for k, v in event.items() if k not in {"seq", "at_s", "kind", "job"} and v not in (None, "")}
        told = " ".join(
            f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in rest.items()
        )
        line = f"{relative_time.stamp(event['at_s'])}  {kind:12} {event['job'] or '':10} {told}"
        out.print(line.rstrip(), soft_wrap=True, markup=False)


def logs(
    job_id: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over, however often it is tried.")
    ] = False,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="Whose log.")] = 0,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Default: the last.")] = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Print what a rank of a job wrote; with --json and --follow one line for each part.

    Example: cranny logs job-17 --rank 3 -f
    """
    remote = ServiceClient(server, token_file)
    if follow:
        for part in writes(remote, job_id, rank, attempt):
            _write(json.dumps(part) + "\n" if as_json else part["text"])
        return
    parts = []
    for part in written(remote, job_id, rank, attempt):
        parts.append(part["text"])
        if not as_json:
            _write(parts.pop())
    if as_json:
        print_json({**part, "offset": 0, "text": "".join(parts)})


def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="JOB...", help="The ids of jobs.")],
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Cancel jobs, waiting or running.

    Example: cranny cancel job-17 job-18
    """
    remote = ServiceClient(server, token_file)
    told = []
    code = 0
    for job_id in job_ids:
        try:
            told.append(remote.send("POST", f"{path_of(job_id)}/cancel"))
        except CrannyError as error:
            err.print(f"cranny: {error}", markup=False, soft_wrap=True)
            code = max(code, 2 if isinstance(error, InputError) else 1)
    if as_json:
        print_json(told)
    else:
        for job in told:
            out.print(f"{job['id']} {state(job)}", soft_wrap=True, markup=False)
    if code:
        raise typer.Exit(code)


def plan(
    file: Annotated[Path, typer.Option("--file", "-f", help="A job file (YAML or JSON).")],
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say what would happen if a job were submitted now; nothing is started.

    Example: cranny plan -f job.yaml
    """
    from cranny.service.job_spec import read

    spec = read(file)
    remote = ServiceClient(server, token_file)
    with about(file):
        told = remote.send("POST", "/api/v1/plan", spec)
    if as_json:
        print_json(told)
        return
    out.print("it would start now" if told["starts"] else "it would wait")
    if told["would_stop"]:
        out.print(f"jobs that would give way: {', '.join(told['would_stop'])}", soft_wrap=True, markup=False)
    tell(told["explanation"])


@contextmanager
def about(file: Path) -> Iterator[None]:
    """Name the job file before what the server finds wrong with it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith("--"):  # an option of ours is wrong, not the file
            raise
        raise InputError(f"{file}: {error}") from None


def explain_live(job_id: str, server: str | None, token_file: Path | None, *, as_json: bool) -> None:
    """Say why a job of a server is where it is, or why it waits."""
    told = ServiceClient(server, token_file).get(f"{path_of(job_id)}/explain")
    if as_json:
        print_json(told)
    else:
        out.print(f"{told['job']} {told['status']}", markup=False)
        tell(told)


def tell(told: dict[str, Any]) -> None:
    """Print an explanation."""
    out.print(told["reason"], soft_wrap=True, markup=False)
    for line in told["evidence"]:
        out.print(f"  {line}", soft_wrap=True, markup=False)
    start_s = told["predicted_start_s"]
    if told["status"] == "waiting" and told["kind"] != "placed" and start_s is not None:
        soon = relative_time.soon(start_s, relative_time.now_s())
        out.print(f"predicted start: {soon}, at {relative_time.stamp(start_s)}", markup=False)
    if told["next_step"]:
        out.print(f"what would help: {told['next_step']}", soft_wrap=True, markup=False)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
