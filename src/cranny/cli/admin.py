"""`cranny policy` and `cranny token`: the policy of a server, and the tokens of its users."""

from typing import Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.client import ServerOption, ServiceClient, TokenOption
from cranny.cli.console import err, out, print_json
from cranny.cli.serve import DatabaseOption, needs_service
from cranny.cli.typer_errors import Commands
from cranny.model.errors import InputError

policy = Commands(help="Show or set the policy of a server.")
token = Commands(help="Create, list and revoke tokens.")


@policy.command("show")
def policy_show(
    server: ServerOption = None, token_file: TokenOption = None, as_json: options.JsonOption = False
) -> None:
    """Show the policy of a server.

    Example: cranny policy show
    """
    _print_setting(ServiceClient(server, token_file).get("/api/v1/policy"), as_json=as_json)


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
    """Switch to another policy; running jobs keep running.

    Example: cranny policy set titan --order backfill
    """
    options.split_policies(name)
    body = {"name": name, "order": order, "period_s": period, "options": options.read_settings(policy_options)}
    _print_setting(ServiceClient(server, token_file).send("PUT", "/api/v1/policy", body), as_json=as_json)


def _print_setting(setting: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(setting)
        return
    when = f"every {setting['period_s']:g} s" if setting["period_s"] else "at every event"
    out.print(f"{setting['name']}, queue order {setting['order']}, decides {when}", markup=False)


@token.command("create")
def token_create(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user of the token.")],
    role: Annotated[str, typer.Option("--role", help="viewer, user or admin.")] = "user",
    database: DatabaseOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Create a token and print it; with --database this works before the first start of a server.

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
        created: Any = {"id": row.id, "user": row.user, "role": row.role, "token": made}
    else:
        remote = ServiceClient(server, token_file)
        with options.named("role"):
            created = remote.send("POST", "/api/v1/tokens", {"user": user, "role": role})
    if as_json:
        print_json(created)
        return
    err.print(
        f"token {created['id']} for {created['user']} as {created['role']}; it cannot be shown again", markup=False
    )
    out.print(created["token"], soft_wrap=True, markup=False)


@token.command("list")
def token_list(
    server: ServerOption = None, token_file: TokenOption = None, as_json: options.JsonOption = False
) -> None:
    """List tokens; their text is not stored.

    Example: cranny token list
    """
    found = ServiceClient(server, token_file).get("/api/v1/tokens")
    if as_json:
        print_json(found)
        return
    if not found["tokens"]:
        out.print("no tokens; create one with `cranny token create USER`", markup=False)
    for each in found["tokens"]:
        state = "revoked" if each["revoked_s"] is not None else "valid"
        out.print(f"{each['id']}  {each['role']:6}  {state:7}  {each['user']}", markup=False)


@token.command("revoke")
def token_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="See `cranny token list`.")],
    database: DatabaseOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Revoke a token.

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
            raise InputError(f"no valid token {token_id!r}")
    else:
        from urllib.parse import quote

        ServiceClient(server, token_file).send("DELETE", f"/api/v1/tokens/{quote(token_id, safe='')}")
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        out.print(f"token {token_id} revoked", markup=False)
