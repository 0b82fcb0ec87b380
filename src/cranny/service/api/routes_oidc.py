"""The routes by which a browser signs in with an OpenID provider."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse

from cranny.service.api.dependencies import AuditDep
from cranny.service.connection_limit import network_of
from cranny.service.limits import NotFoundError
from cranny.service.oidc_login import MAX_TEXT, OidcLogin
from cranny.service.oidc_settings import CALLBACK

router = APIRouter(tags=["access"])


def oidc_of(request: Request) -> OidcLogin:
    """Return the sign-in that the service was started with."""
    found: OidcLogin | None = request.app.state.oidc
    if found is None:
        raise NotFoundError("no OpenID provider is set: cranny serve --oidc")
    return found


OidcDep = Annotated[OidcLogin, Depends(oidc_of)]


@router.post("/api/v1/oidc/login")
async def begin(request: Request, oidc: OidcDep) -> Any:
    """Begin a sign-in: where the browser goes, from which origin, and the verifier that its page keeps."""
    client = None if request.client is None else (request.client.host, request.client.port)
    begun = await oidc.begin(network_of(client))
    return {"url": begun.url, "verifier": begun.verifier, "origin": oidc.origin}


@router.get(CALLBACK, include_in_schema=False)
async def callback(request: Request, oidc: OidcDep, audit: AuditDep) -> RedirectResponse:
    """Send a browser that comes back from the provider to the page, with a login code or the reason why not."""
    answer = {name: value[:MAX_TEXT] for name, value in request.query_params.items()}
    fragment = await oidc.finish(answer)
    if "code=" not in fragment:
        audit.refused(request.client.host if request.client is not None else "")
    return RedirectResponse(f"/{fragment}", 303, {"Cache-Control": "no-store"})
