"""`cranny submit`, `jobs`, `watch`, `logs`, `cancel`, `plan`: jobs of a server."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cranny.cli import options
from cranny.cli.client import Remote, changes, path_of, remote_options, state, writes, written
from cranny.cli.console import PIPED_WIDTH, err, out, print_json, print_table, printable, say, warn
from cranny.cli.options import argument, option
from cranny.model.errors import CrannyError, InputError
from cranny.service.clock import wall_clock

JobArgument = Annotated[str, argument("JOB", "The id of a job, such as job-17.")]
MAX_KEY = 200  # characters
COLUMNS = ("job", "name", "user", "GPUs", "status", "submitted", "start", "where or why")
PLACED = "when it was placed: "  # how a service begins evidence that is of that moment
SPARE = ("submitted", "name", "user")  # columns that a narrow terminal does without
MOST_NAME, MOST_USER = 20, 12  # letters of a name on a terminal, so that it takes no other column's place


@remote_options
def submit(
    file: Annotated[Path, argument("FILE", "A job file (YAML or JSON); see docs/use/service.md.")],
    key: Annotated[
        str | None, option("--key", "Idempotency key: the same key and file submit one job only.")
    ] = None,
    wait: Annotated[bool, option("--wait", "Wait until the job ends; exit code 1 unless it is done.")] = False,
    backend: Annotated[
        Literal["server", "slurm"],
        option("--backend", "Where to: a server, or Slurm, as a job of your own that cranny is to place there."),
    ] = "server",
    *,
    remote: Remote,
) -> None:
    """Submit a job.

    Example: cranny submit job.yaml --wait
    """
    from cranny.service.job_spec import parse, read

    spec = read(file)
    if backend == "slurm":
        from cranny.cli.submit_slurm import submit_to_slurm

        if key is not None or wait:
            raise InputError(f"--{'wait' if wait else 'key'}: for a server; Slurm has squeue and sbatch --wait")
        with about(file):
            slurm_id = submit_to_slurm(parse(spec))
        remote.show(
            {"external": slurm_id}, f"{slurm_id} in Slurm, which cranny places: scontrol show job {slurm_id}"
        )
        return
    if key is not None and not (1 <= len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise InputError(f"--key: must be 1 to {MAX_KEY} printable ASCII characters, not {key[:MAX_KEY]!r}")
    with about(file):
        job = remote.client.send("POST", "/api/v1/jobs", spec, {"Idempotency-Key": key} if key else None)
    if wait:  # print the job id first, in case the wait is interrupted
        err.print(f"{job['id']} {state(job)}", soft_wrap=True, markup=False)
        for _ in changes(remote.client, job["id"], known=True):
            pass
        job = remote.client.get_in_time(path_of(job["id"]))
    remote.show(job, f"{job['id']} {state(job)}")
    if wait and job["status"] != "done":
        raise typer.Exit(1)


@remote_options
def jobs(
    status: Annotated[
        list[str] | None, option("--status", "Only these, such as waiting or running.", short="-s")
    ] = None,
    user: Annotated[str | None, option("--user", "Only jobs of this user.")] = None,
    limit: Annotated[int, option("--limit", "At most this many, latest first.", short="-n", min=1, max=1000)] = 50,
    *,
    remote: Remote,
) -> None:
    """List jobs, the latest first; with --status waiting only, in queue order.

    Example: cranny jobs --status waiting --status running
    """
    with options.named("status", "user"):
        found = remote.client.get("/api/v1/jobs", status=status, user=user, limit=limit, newest=True)
    if remote.as_json:
        print_json(found)
        return
    _show(found["jobs"])
    if found["total"] > len(found["jobs"]):
        out.print(f"{len(found['jobs'])} of {found['total']}; see --limit")


def _short(name: str, most: int) -> str:
    """Shorten a name on a terminal; output that is piped has all of it."""
    return name if len(name) <= most or out.width >= PIPED_WIDTH else f"{name[: most - 1]}…"


def _show(found: list[dict[str, Any]]) -> None:
    """Print a table of jobs: submission, start, and machines or reason to wait."""
    now = wall_clock()
    rows = []
    for job in found:
        start = ago(job["started_s"], now)
        if job["status"] == "waiting":  # possibly after an earlier attempt
            start = soon(job["predicted_start_s"], now) if job["predicted_start_s"] is not None else ""
        first, more = job["machines"][:1], len(job["machines"]) - 1
        where = " and ".join([*first, f"{more} more"] if more > 0 else first)
        why = job["reason"].removeprefix(f"{job['status']} ").removeprefix("with ")
        own = (
            job["id"],
            _short(job["name"] or "", MOST_NAME),
            _short(job["user"], MOST_USER),
            str(job["gpus"]),
            job["status"],
        )
        rows.append((*own, ago(job["submitted_s"], now), start, why or where))
    print_table(COLUMNS, rows, numbers=("GPUs",), words=("where or why",), spare=SPARE)


@remote_options
def watch(
    job_id: Annotated[str | None, argument("[JOB]", "Only this job, until it ends.")] = None, *, remote: Remote
) -> None:
    """Print events as they happen.

    Example: cranny watch job-17
    """
    for kind, event in changes(remote.client, job_id):
        if remote.as_json:
            _write(json.dumps(event) + "\n")
            continue
        fields = " ".join(
            f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in event.items()
            if name not in {"seq", "at_s", "kind", "job"} and value not in (None, "")
        )
        say(f"{stamp(event['at_s'])}  {kind:12} {event['job'] or '':10} {fields}".rstrip())


@remote_options
def logs(
    job_id: JobArgument,
    follow: Annotated[
        bool, option("--follow", "Follow the log until the job ends, through retries.", short="-f")
    ] = False,
    rank: Annotated[int, option("--rank", "The rank whose log is printed.", short="-r", min=0)] = 0,
    attempt: Annotated[int | None, option("--attempt", "Default: the latest.", min=1)] = None,
    raw: Annotated[bool, option("--raw", "Print control characters as the job wrote them.")] = False,
    *,
    remote: Remote,
) -> None:
    """Print the log of a rank; with --json and --follow one JSON line for each part.

    Colours are removed and other control characters shown, since a job could command your terminal by them.

    Example: cranny logs job-17 --rank 3 -f
    """
    if follow:
        for part in writes(remote.client, job_id, rank, attempt):
            _write(json.dumps(part) + "\n" if remote.as_json else _text(part, raw=raw))
        return
    parts = written(remote.client, job_id, rank, attempt)
    if remote.as_json:
        *_, last = found = list(parts)
        print_json({**last, "offset": 0, "text": "".join(part["text"] for part in found)})
        return
    for part in parts:
        _write(_text(part, raw=raw))


@remote_options
def cancel(job_ids: Annotated[list[str], argument("JOB...", "The ids of jobs.")], *, remote: Remote) -> None:
    """Cancel jobs, waiting or running.

    Example: cranny cancel job-17 job-18
    """
    cancelled, code = [], 0
    for job_id in job_ids:
        try:
            cancelled.append(remote.client.send("POST", f"{path_of(job_id)}/cancel"))
        except CrannyError as error:
            warn(str(error))
            code = max(code, 2 if isinstance(error, InputError) else 1)
    remote.show(cancelled, *(f"{job['id']} {state(job)}" for job in cancelled))
    if code:
        raise typer.Exit(code)


@remote_options
def plan(
    file: Annotated[Path, option("--file", "A job file (YAML or JSON).", short="-f")], *, remote: Remote
) -> None:
    """Show what would happen if a job were submitted now; nothing is started.

    Example: cranny plan -f job.yaml
    """
    from cranny.service.job_spec import read

    spec = read(file)
    with about(file):
        planned = remote.client.send("POST", "/api/v1/plan", spec)
    lines = ["it would start now" if planned["starts"] else "it would wait"]
    if planned["would_stop"]:
        lines.append(f"jobs that would be preempted: {', '.join(planned['would_stop'])}")
    remote.show(planned, *lines, *explanation_lines(planned["explanation"]))


@contextmanager
def about(file: Path) -> Iterator[None]:
    """Prefix errors of the server about a job file with its path."""
    try:
        yield
    except InputError as error:
        if str(error).startswith("--"):  # about an option, not about the file
            raise
        raise InputError(f"{file}: {error}") from None


def explanation_lines(why: dict[str, Any]) -> Iterator[str]:
    """Yield an explanation line by line."""
    yield why["reason"]
    then = [line.removeprefix(PLACED) for line in why["evidence"] if line.startswith(PLACED)]
    yield from (f"  {line}" for line in why["evidence"] if not line.startswith(PLACED))
    if then:
        yield f"  {PLACED.strip()}"
        yield from (f"    {line}" for line in then)
    start_s = why["predicted_start_s"]
    if why["status"] == "waiting" and why["kind"] != "placed" and start_s is not None:
        yield f"predicted start: {soon(start_s, wall_clock())}, at {stamp(start_s)}"
    if why["next_step"]:
        yield f"what would help: {why['next_step']}"


def _text(part: dict[str, Any], *, raw: bool) -> str:
    return str(part["text"]) if raw else printable(part["text"])


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def stamp(at_s: float) -> str:
    """Write a moment in the time of this machine, to the second."""
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S}"


def brief(seconds: float) -> str:
    """Write a duration in a few characters: 45s, 12m, 5h, 3d."""
    seconds = max(0.0, seconds)
    for letter, unit_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= (2 * unit_s if letter == "d" else unit_s):  # 30h says more than 1d
            return f"{seconds / unit_s:.0f}{letter}"
    return f"{seconds:.0f}s"


def ago(at_s: float | None, now: float) -> str:
    """Say how long ago something was; nothing if it was not."""
    return "" if at_s is None else f"{brief(now - at_s)} ago"


def soon(at_s: float, now: float) -> str:
    """Say in how long something is expected."""
    return f"in ~{brief(at_s - now)}" if at_s > now else "soon"
