"""`cranny policy` and `cranny token`: which policy decides at a server, and who may use it."""

from typing import Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.client import ServerOption, ServiceClient, TokenOption
from cranny.cli.console import err, out, print_json
from cranny.cli.serve import DatabaseOption, needs_service
from cranny.cli.typer_errors import Commands
from cranny.model.errors import InputError

policy = Commands(help="Show or choose the policy of a server.")
token = Commands(help="Make, list and revoke tokens.")


@policy.command("show")
def policy_show(
    server: ServerOption = None, token_file: TokenOption = None, as_json: options.JsonOption = False
) -> None:
    """Show which policy decides.

    Example: cranny policy show
    """
    _tell(ServiceClient(server, token_file).get("/api/v1/policy"), as_json=as_json)


@policy.command("set")
def policy_set(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `cranny policies`.")],
    order: options.OrderOption = None,
    period: options.PeriodOption = 0.0,
    policy_options: options.SettingsOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Let another policy decide from now on; jobs that run go on.

    Example: cranny policy set titan --order backfill
    """
    options.split_policies(name)
    body = {"name": name, "order": order, "period_s": period, "options": options.read_settings(policy_options)}
    _tell(ServiceClient(server, token_file).send("PUT", "/api/v1/policy", body), as_json=as_json)


def _tell(setting: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(setting)
        return
    when = f"every {setting['period_s']:g} s" if setting["period_s"] else "at every event"
    out.print(f"{setting['name']}, queue order {setting['order']}, decides {when}", markup=False)


@token.command("create")
def token_create(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who gets it.")],
    role: Annotated[str, typer.Option("--role", help="viewer, user or admin.")] = "user",
    database: DatabaseOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Make a token and print it, this once; with --database also before a server was ever started.

    Example: cranny token create ann --role user
    """
    if database is not None:
        needs_service()
        from cranny.service.auth import create
        from cranny.service.clock import wall_clock
        from cranny.service.store import EventStore

        store = EventStore(database)
        with options.named("role"):
            row, made = create(store, user, role, wall_clock())
        store.close()
        told: Any = {"id": row.id, "user": row.user, "role": row.role, "token": made}
    else:
        remote = ServiceClient(server, token_file)
        with options.named("role"):
            told = remote.send("POST", "/api/v1/tokens", {"user": user, "role": role})
    if as_json:
        print_json(told)
        return
    err.print(f"token {told['id']} for {told['user']} as {told['role']}; it is shown only now", markup=False)
    out.print(told["token"], soft_wrap=True, markup=False)


@token.command("list")
def token_list(
    server: ServerOption = None, token_file: TokenOption = None, as_json: options.JsonOption = False
) -> None:
    """List tokens; what they look like is not kept.

    Example: cranny token list
    """
    found = ServiceClient(server, token_file).get("/api/v1/tokens")
    if as_json:
        print_json(found)
        return
    if not found["tokens"]:
        out.print("there are no tokens; make one with `cranny token create USER`", markup=False)
    for each in found["tokens"]:
        state = "revoked" if each["revoked_s"] is not None else "counts"
        out.print(f"{each['id']}  {each['role']:6}  {state:7}  {each['user']}", markup=False)


@token.command("revoke")
def token_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="See `cranny token list`.")],
    database: DatabaseOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Let a token no longer count.

    Example: cranny token revoke 3f9c2a7b1d04
    """
    if database is not None:
        needs_service()
        from cranny.service.clock import wall_clock
        from cranny.service.store import EventStore

        store = EventStore(database)
        found = store.revoke_token(token_id, wall_clock())
        store.close()
        if not found:
            raise InputError(f"there is no token {token_id!r} that counts")
    else:
        from urllib.parse import quote

        ServiceClient(server, token_file).send("DELETE", f"/api/v1/tokens/{quote(token_id, safe='')}")
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        out.print(f"token {token_id} revoked", markup=False)
