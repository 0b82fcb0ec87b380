"""`cranny nodes`, `drain`, `resume`, `policy`, `token`: machines and policy of a server, tokens of its users."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cranny.cli import completion, options
from cranny.cli.client import Remote, remote_options
from cranny.cli.console import err, print_json, print_table
from cranny.cli.jobs import stamp
from cranny.cli.options import argument, option
from cranny.cli.serve import DatabaseOption, needs_service
from cranny.cli.typer_errors import Commands
from cranny.model.errors import InputError
from cranny.service.clock import wall_clock

if TYPE_CHECKING:
    from cranny.service.store import EventStore

MachineArgument = Annotated[str, argument("MACHINE", "The name of a machine, or its index.")]
AUDIT_COLUMNS = frozenset({"seq", "at_s", "kind", "job", "action", "by"})
policy = Commands(help="Show or set the policy of a server.")
token = Commands(help="Create, list and revoke tokens.")


@remote_options
def nodes(remote: Remote) -> None:
    """List machines, their free GPUs and the jobs that hold the others.

    Example: cranny nodes
    """
    page = remote.client.get("/api/v1/nodes")
    found = page["nodes"]
    while page["next"] is not None:
        page = remote.client.get("/api/v1/nodes", after=page["next"])
        found += page["nodes"]
    if remote.as_json:
        print_json(found)
        return
    rows = []
    for node in found:
        held = ", ".join(dict.fromkeys(job for job in node["slots"] if job))
        uplink = f"{node['uplink_use_gbps']:.1f} of {node['uplink_gbps']:.0f} Gbps"
        state = f"{node['state']}: {node['why']}" if node.get("why") else node["state"]
        own = (str(each) for each in (node["name"], node["rack"], state, node["gpus"], node["free"]))
        rows.append((*own, uplink, held))
    print_table(
        ("machine", "rack", "state", "GPUs", "free", "uplink", "jobs"),
        rows,
        words=("jobs",),
        spare=("rack", "uplink"),
    )


@remote_options
def profiles(remote: Remote) -> None:
    """List what jobs have shown of themselves: throughput on each type of GPU, gradients, cost of a restart.

    Example: cranny profiles
    """
    found = remote.client.get("/api/v1/profiles")["profiles"]
    if remote.as_json:
        print_json(found)
        return
    rows = []
    for each in found:
        rates = ", ".join(f"{kind or 'GPU'} {rate:.3g}/s" for kind, rate in each["rates"].items())
        batch, size, restart_s = each["batch"], each["gradient_bytes"], each["restart_s"]
        rows.append(
            (
                each["user"],
                each["name"],
                rates,
                "" if batch is None else f"{batch:.0f}",
                "" if size is None else f"{size / 1e6:.1f} MB",
                "" if restart_s is None else f"{restart_s:.0f} s",
            )
        )
    columns = ("user", "name", "samples of a rank", "batch", "gradients", "restart")
    print_table(columns, rows, words=("samples of a rank",), numbers=columns[3:])


@remote_options
def drain(machine: MachineArgument, remote: Remote) -> None:
    """Drain a machine: place no more jobs on it; those on it keep running.

    Example: cranny drain rack0-machine1
    """
    _change(machine, "drain", remote)


@remote_options
def resume(machine: MachineArgument, remote: Remote) -> None:
    """Resume a drained machine: place jobs on it again.

    Example: cranny resume rack0-machine1
    """
    _change(machine, "resume", remote)


def _change(machine: str, how: str, remote: Remote) -> None:
    node = remote.client.send("POST", f"/api/v1/nodes/{quote(machine, safe='')}/{how}")
    remote.show(node, f"{node['name']} {node['state']}, {node['free']} of {node['gpus']} GPUs free")


@remote_options
def audit(
    limit: Annotated[int, option("--limit", "At most this many, the latest.", short="-n", min=1, max=1000)] = 50,
    *,
    remote: Remote,
) -> None:
    """List logins, changes of tokens and actions of administrators; the latest last.

    Example: cranny audit --limit 20
    """
    found = remote.client.get("/api/v1/audit", limit=limit)
    lines = []
    for event in reversed(found["events"]):
        about = [("job", event["job"]), *((name, event[name]) for name in event if name not in AUDIT_COLUMNS)]
        fields = " ".join(f"{name}={value}" for name, value in about if value not in (None, ""))
        lines.append(f"{stamp(event['at_s'])}  {event['action']:13}  {event['by'] or '-':12}  {fields}".rstrip())
    remote.show(found, *(lines or ["no events"]))


@policy.command("show")
@remote_options
def policy_show(remote: Remote) -> None:
    """Show the policy of a server.

    Example: cranny policy show
    """
    _show_setting(remote, remote.client.get("/api/v1/policy"))


@policy.command("set")
@remote_options
def policy_set(
    name: Annotated[str, argument("NAME", "See `cranny policies`.", autocompletion=completion.policies)],
    order: options.OrderOption = None,
    period: options.PeriodOption = 0.0,
    policy_options: options.SettingsOption = None,
    *,
    remote: Remote,
) -> None:
    """Switch to another policy; running jobs keep running.

    Example: cranny policy set titan --order backfill
    """
    options.split_policies(name)
    body = {"name": name, "order": order, "period_s": period, "options": options.read_settings(policy_options)}
    _show_setting(remote, remote.client.send("PUT", "/api/v1/policy", body))


def _show_setting(remote: Remote, setting: Any) -> None:
    when = f"every {setting['period_s']:g} s" if setting["period_s"] else "at every event"
    remote.show(setting, f"{setting['name']}, queue order {setting['order']}, decides {when}")


@token.command("create")
@remote_options
def token_create(
    user: Annotated[str, argument("USER", "The user of the token.")],
    role: Annotated[str, option("--role", "viewer, user or admin.")] = "user",
    valid_days: Annotated[
        float | None, option("--valid-days", "Days until it expires (default: it is valid until revoked).")
    ] = None,
    database: DatabaseOption = None,
    *,
    remote: Remote,
) -> None:
    """Create a token and print it; with --database this works before the first start of a server.

    Example: cranny token create ann --role user
    """
    with options.named("role", "valid_days"):
        if database is None:
            asked = {"user": user, "role": role, "valid_days": valid_days}
            created = remote.client.send("POST", "/api/v1/tokens", asked)
        else:
            with _opened(database) as store:
                from cranny.service.audit import about
                from cranny.service.auth import create

                row, made = create(store, user, role, wall_clock(), valid_days)
                _audit(store, "token-created", about(row))
            created = {"id": row.id, "user": row.user, "role": row.role, "expires_s": row.expires_s, "token": made}
    if not remote.as_json:
        until = "" if created["expires_s"] is None else f", valid until {stamp(created['expires_s'])}"
        note = f"token {created['id']} for {created['user']} as {created['role']}{until}; it cannot be shown again"
        err.print(note, markup=False)
    remote.show(created, created["token"])


@token.command("list")
@remote_options
def token_list(remote: Remote) -> None:
    """List tokens; their text is not stored.

    Example: cranny token list
    """
    found = remote.client.get("/api/v1/tokens")
    lines = []
    for each in found["tokens"]:
        expires_s = each["expires_s"]
        state = "expired" if expires_s is not None and expires_s <= wall_clock() else "valid"
        state = "revoked" if each["revoked_s"] is not None else state
        until = f"  until {stamp(expires_s)}" if state == "valid" and expires_s is not None else ""
        lines.append(f"{each['id']}  {each['role']:6}  {state:7}  {each['user']}{until}")
    remote.show(found, *(lines or ["no tokens; create one with `cranny token create USER`"]))


@token.command("revoke")
@remote_options
def token_revoke(
    token_id: Annotated[str, argument("ID", "See `cranny token list`.")],
    database: DatabaseOption = None,
    *,
    remote: Remote,
) -> None:
    """Revoke a token.

    Example: cranny token revoke 3f9c2a7b1d04
    """
    if database is None:
        remote.client.send("DELETE", f"/api/v1/tokens/{quote(token_id, safe='')}")
    else:
        with _opened(database) as store:
            if not store.revoke_token(token_id, wall_clock()):
                raise InputError(f"no valid token {token_id!r}")
            _audit(store, "token-revoked", {"token": token_id})
    remote.show({"id": token_id, "revoked": True}, f"token {token_id} revoked")


def _audit(store: "EventStore", action: str, row: dict[str, Any]) -> None:
    """Record what was done to a token, unless a service runs, which notices by itself."""
    from cranny.service.audit import record_offline
    from cranny.service.writer_lock import OtherWriterError

    try:
        store.acquire()
    except OtherWriterError:
        return
    record_offline(store, action, row, wall_clock())


def _opened(database: str) -> "closing[EventStore]":
    """Open the database of a server that need not run."""
    needs_service()
    from cranny.service.store import EventStore

    return closing(EventStore(database))
