"""The dashboard: one page and its files, served from the package, without access control.

The page holds no data: its scripts ask the API, which checks who asks. Its files are served under a name that
changes with their content, so that browsers may keep them for ever and never mix two versions.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

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
# Nothing inline, nothing from elsewhere; with trusted types no script can even turn text into markup.
POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        *("require-trusted-types-for 'script'", "trusted-types 'none'"),
    )
)
SAFE = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FOR_EVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the dashboard as it is sent."""

    content: bytes
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class Site:
    """All files of the dashboard, and the name under which this version of them is served."""

    version: str
    assets: dict[str, Asset]


@cache
def site() -> Site:
    """Read every file of the dashboard, the page itself filled in."""
    folders = [resources.files(package).joinpath(folder) for package, folder in FOLDERS]
    entries = [entry for folder in folders for entry in folder.iterdir()]
    read = {entry.name: entry.read_bytes() for entry in entries if _suffix(entry.name) in TYPES}
    whole = hashlib.sha256()
    for name in sorted(read):
        whole.update(name.encode() + b"\0" + hashlib.sha256(read[name]).digest())
    version = whole.hexdigest()[:12]
    read[INDEX] = _page(read[INDEX].decode(), sorted(name for name in read if name.endswith(".js")), version)
    return Site(version, {name: _asset(name, content) for name, content in read.items()})


@router.get("/")
def page(request: Request) -> Response:
    """Send the page; browsers ask each time whether it is still the same."""
    return _sent(site().assets[INDEX], request, "no-cache")


@router.get("/assets/{version}/{name}")
def asset(request: Request, version: str, name: str) -> Response:
    """Send a file of the page; one of an old version is not found, rather than mixed with new ones."""
    found = site().assets.get(name) if version == site().version and name != INDEX else None
    if found is None:
        return PlainTextResponse("There is no such file; load the page again.\n", status_code=404, headers=SAFE)
    return _sent(found, request, FOR_EVER)


def _sent(found: Asset, request: Request, keep: str) -> Response:
    headers = {**SAFE, "Cache-Control": keep, "ETag": found.etag}
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if found.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


def _page(template: str, modules: list[str], version: str) -> bytes:
    """Fill in where the files are; modules are named up front, so that the browser fetches them at once."""
    base = f"/assets/{version}"
    styles = "\n".join(f'<link rel="stylesheet" href="{base}/{name}">' for name in STYLES)
    wanted = "\n".join(f'<link rel="modulepreload" href="{base}/{name}">' for name in modules)
    filled = template.replace("{{styles}}", styles).replace("{{modules}}", wanted).replace("{{assets}}", base)
    return filled.encode()


def _asset(name: str, content: bytes) -> Asset:
    return Asset(content, TYPES[_suffix(name)], f'"{hashlib.sha256(content).hexdigest()[:20]}"')


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
