"""The dashboard: one page and its files, served from the package, without access control.

The page holds no data: its scripts ask the API, which checks who asks. Its files are served under a name that
changes with their content, so that browsers may keep them for ever and never mix two versions.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from cranny.service.oidc_login import OidcLogin

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The cluster map is that of the report.
FOLDERS = (("cranny.service.dashboard", "static"), ("cranny.report", "cluster_map"))
INDEX = "index.html"
STYLES = ("base.css", "shell.css", "views.css")
NO_SIGN_IN = b'<meta name="sign-in" content="">'
NO_OTHERS = b'<meta name="also-at" content="">'


def policy(also_at: Sequence[str] = ()) -> str:
    """Return the policy of the page: nothing inline, nothing from elsewhere; other services are only looked for.

    With trusted types no script can even turn text into markup.
    """
    return "; ".join(
        (
            *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'"),
            " ".join(("connect-src 'self'", *also_at)),
            *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
            *("require-trusted-types-for 'script'", "trusted-types 'none'"),
        )
    )


SAFE = {
    "Content-Security-Policy": policy(),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FOR_EVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


class Site(NamedTuple):
    """All files of the dashboard, and the name under which this version of them is served."""

    version: str
    assets: dict[str, bytes]


@cache
def site() -> Site:
    """Read every file of the dashboard, the page itself filled in."""
    folders = [resources.files(package).joinpath(folder) for package, folder in FOLDERS]
    entries = [entry for folder in folders for entry in folder.iterdir()]
    read = {entry.name: entry.read_bytes() for entry in entries if Path(entry.name).suffix in TYPES}
    whole = hashlib.sha256()
    for name in sorted(read):
        whole.update(name.encode() + b"\0" + hashlib.sha256(read[name]).digest())
    version = whole.hexdigest()[:12]
    base = f"/assets/{version}"
    # Modules are named up front, so that the browser fetches them at once.
    modules = sorted(name for name in read if name.endswith(".js"))
    links = {"styles": ("stylesheet", STYLES), "modules": ("modulepreload", modules)}
    page = read[INDEX].decode().replace("{{assets}}", base)
    for place, (kind, names) in links.items():
        lines = "\n".join(f'<link rel="{kind}" href="{base}/{name}">' for name in names)
        page = page.replace(f"{{{{{place}}}}}", lines)
    return Site(version, {**read, INDEX: page.encode()})


@router.get("/")
def page(request: Request) -> Response:
    """Send the page; browsers ask each time whether it is still the same."""
    also_at: tuple[str, ...] = request.app.state.also_at
    others = f'<meta name="also-at" content="{escape(" ".join(also_at))}">'.encode()
    oidc: OidcLogin | None = request.app.state.oidc
    sign_in = f'<meta name="sign-in" content="{escape(oidc.name) if oidc is not None else ""}">'.encode()
    content = site().assets[INDEX].replace(NO_OTHERS, others).replace(NO_SIGN_IN, sign_in)
    return _sent(INDEX, request, "no-cache", content, policy(also_at))


@router.get("/assets/{version}/{name}")
def asset(request: Request, version: str, name: str) -> Response:
    """Send a file of the page; one of an old version is not found, rather than mixed with new ones."""
    if version != site().version or name == INDEX or name not in site().assets:
        return PlainTextResponse("There is no such file; load the page again.\n", status_code=404, headers=SAFE)
    return _sent(name, request, FOR_EVER, site().assets[name], policy())


def _sent(name: str, request: Request, keep: str, content: bytes, allowed: str) -> Response:
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {**SAFE, "Content-Security-Policy": allowed, "Cache-Control": keep, "ETag": etag}
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if etag in known:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=TYPES[Path(name).suffix], headers=headers)
