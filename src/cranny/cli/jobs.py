"""`cranny submit`, `jobs`, `watch`, `logs`, `cancel`, `plan`: jobs of a server."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.console import err, out, print_json
from cranny.cli.remote import Remote, ServerOption, TokenOption
from cranny.model.errors import CrannyError

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The id of a job, such as job-17.")]
OVER = frozenset({"done", "failed", "cancelled"})


def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file (YAML or JSON); see docs/service.md.")],
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
    from cranny.service.spec import read

    spec = read(file)
    remote = Remote(server, token_file)
    job = remote.send("POST", "/api/v1/jobs", spec, {"Idempotency-Key": key} if key else None)
    if wait:
        job = _until_over(remote, job["id"])
    if as_json:
        print_json(job)
    else:
        out.print(f"{job['id']} {_state(job)}", soft_wrap=True, markup=False)
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
    found = Remote(server, token_file).get("/api/v1/jobs", status=status, user=user, limit=limit, newest=True)
    if as_json:
        print_json(found)
        return
    from rich.table import Table

    table = Table("job", "name", "user", "GPUs", "status", "machines", "why", box=None, header_style="bold")
    for job in found["jobs"]:
        where = ", ".join(job["machines"][:3]) + (", ..." if len(job["machines"]) > 3 else "")
        table.add_row(
            *(job["id"], job["name"] or "", job["user"], str(job["gpus"]), job["status"], where, job["reason"])
        )
    out.print(table)
    if found["total"] > len(found["jobs"]):
        out.print(f"{len(found['jobs'])} of {found['total']}; see --limit")


def watch(
    job_id: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job, until it is over.")] = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Print what changes as it happens.

    Example: cranny watch job-17
    """
    import json

    remote = Remote(server, token_file)
    if job_id is not None and _over(remote, job_id):
        return
    for kind, event in remote.stream("/api/v1/events"):
        if job_id not in (None, event["job"]):
            continue
        if as_json:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
        else:
            rest = {
                k: v for k, v in event.items() if k not in {"seq", "at_s", "kind", "job"} and v not in (None, "")
            }
            told = " ".join(f"{name}={value}" for name, value in rest.items())
            out.print(f"{kind:12} {event['job'] or '':10} {told}", soft_wrap=True, markup=False)
        if job_id is not None and event.get("status", kind) in OVER:
            return


def logs(
    job_id: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="Whose log.")] = 0,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Default: the last.")] = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Print what a rank of a job wrote.

    Example: cranny logs job-17 --rank 3 -f
    """
    remote = Remote(server, token_file)
    offset = 0
    path = f"/api/v1/jobs/{_part(job_id)}/logs"
    while True:
        part = remote.get(path, rank=rank, attempt=attempt, offset=offset)
        if as_json:
            print_json(part)
            return
        _write(part["text"])
        if part["next_offset"] == offset:
            break
        offset = part["next_offset"]
    if follow:
        for kind, data in remote.stream(f"{path}/follow", rank=rank, offset=offset):
            if kind == "text":
                _write(data["text"])


def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="JOB...", help="The ids of jobs.")],
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Cancel jobs, waiting or running.

    Example: cranny cancel job-17 job-18
    """
    remote = Remote(server, token_file)
    told = []
    failed = False
    for job_id in job_ids:
        try:
            told.append(remote.send("POST", f"/api/v1/jobs/{_part(job_id)}/cancel"))
        except CrannyError as error:
            err.print(f"cranny: {error}", markup=False, soft_wrap=True)
            failed = True
    if as_json:
        print_json(told)
    else:
        for job in told:
            out.print(f"{job['id']} {_state(job)}", soft_wrap=True, markup=False)
    if failed:
        raise typer.Exit(1)


def plan(
    file: Annotated[Path, typer.Option("--file", "-f", help="A job file (YAML or JSON).")],
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say what would happen if a job were submitted now; nothing is started.

    Example: cranny plan -f job.yaml
    """
    from cranny.service.spec import read

    spec = read(file)
    told = Remote(server, token_file).send("POST", "/api/v1/plan", spec)
    if as_json:
        print_json(told)
        return
    out.print("it would start now" if told["starts"] else "it would wait")
    if told["would_stop"]:
        out.print(f"jobs that would give way: {', '.join(told['would_stop'])}", soft_wrap=True, markup=False)
    tell(told["explanation"])


def explain_live(job_id: str, server: str | None, token_file: Path | None, *, as_json: bool) -> None:
    """Say why a job of a server is where it is, or why it waits."""
    told = Remote(server, token_file).get(f"/api/v1/jobs/{_part(job_id)}/explain")
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
    if told["next_step"]:
        out.print(f"what would help: {told['next_step']}", soft_wrap=True, markup=False)


def _state(job: dict[str, Any]) -> str:
    """Say in a few words how a job stands."""
    where = f" on {', '.join(job['machines'])}" if job["machines"] and job["status"] not in OVER else ""
    return f"{job['status']}{where}" + (f": {job['reason']}" if job["reason"] else "")


def _over(remote: Remote, job_id: str) -> bool:
    return remote.get(f"/api/v1/jobs/{_part(job_id)}")["status"] in OVER


def _until_over(remote: Remote, job_id: str) -> Any:
    """Wait for the end of a job."""
    since = remote.get("/api/v1/cluster")["seq"]
    job = remote.get(f"/api/v1/jobs/{_part(job_id)}")
    if job["status"] not in OVER:
        for kind, event in remote.stream("/api/v1/events", after=since):
            if event["job"] == job_id and event.get("status", kind) in OVER:
                break
        job = remote.get(f"/api/v1/jobs/{_part(job_id)}")
    return job


def _part(text: str) -> str:
    """Write a name as one part of a path."""
    from urllib.parse import quote

    return quote(text, safe="")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
