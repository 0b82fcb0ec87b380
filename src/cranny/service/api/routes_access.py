"""The routes about tokens, sessions and the health of the service."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from pydantic import Field

from cranny.model.yaml_file import Fields, Name
from cranny.service.api.dependencies import AdminCaller, AnyCaller, AuthDep, ServiceDep, caller_of, cookie_of
from cranny.service.auth import SESSION_S, Role, UnauthenticatedError, create
from cranny.service.limits import NotFoundError

router = APIRouter(tags=["access"])


class TokenRequest(Fields):
    """User and role of a new token."""

    user: Name
    role: Role = "user"


class SessionRequest(Fields):
    """The token to open a session with."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


@router.get("/api/v1/tokens")
def tokens(service: ServiceDep, _caller: AdminCaller) -> Any:
    """List tokens, without their text."""
    rows = service.store.tokens()
    return {"tokens": [{k: v for k, v in row._asdict().items() if k != "hash"} for row in rows]}


@router.post("/api/v1/tokens", status_code=201)
def create_token(body: TokenRequest, service: ServiceDep, authenticator: AuthDep, _caller: AdminCaller) -> Any:
    """Create a token; its text is returned only now."""
    row, token = create(service.store, body.user, body.role, service.now_s())
    authenticator.invalidate()
    return {"id": row.id, "user": row.user, "role": row.role, "created_s": row.created_s, "token": token}


@router.delete("/api/v1/tokens/{token_id}", status_code=204)
def revoke_token(token_id: str, service: ServiceDep, authenticator: AuthDep, _caller: AdminCaller) -> Response:
    """Revoke a token."""
    if not service.store.revoke_token(token_id, service.now_s()):
        raise NotFoundError(f"no valid token {token_id!r}")
    authenticator.invalidate()
    return Response(status_code=204)


@router.post("/api/v1/session", status_code=204)
def begin(body: SessionRequest, request: Request, authenticator: AuthDep) -> Response:
    """Open a browser session with a token."""
    return _with_cookie(Response(status_code=204), authenticator.log_in(body.token), request)


@router.delete("/api/v1/session", status_code=204)
def end(request: Request, authenticator: AuthDep, _caller: AnyCaller) -> Response:
    """End the session of this browser."""
    cookie = cookie_of(request)
    authenticator.log_out(request.cookies.get(cookie, ""))
    response = Response(status_code=204)
    response.delete_cookie(cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response


@router.get("/login", include_in_schema=False)
def login(request: Request, authenticator: AuthDep, code: str = "") -> Response:
    """Open a session with the code of a one-time link; for a used code the page explains what to do."""
    try:
        session = authenticator.redeem(code)
    except UnauthenticatedError:
        return RedirectResponse("/#/?link=used", status_code=303)
    return _with_cookie(RedirectResponse("/", status_code=303), session, request)


def _with_cookie(response: Response, session: str, request: Request) -> Response:
    response.set_cookie(
        cookie_of(request),
        session,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.get("/healthz")
def healthz() -> Any:
    """Report that the process answers."""
    return {"ok": True}


@router.get("/readyz")
def readyz(service: ServiceDep) -> Any:
    """Report whether jobs are accepted, and if not, why."""
    why_not = service.why_not_ready
    if not why_not:
        return {"ready": True}
    return JSONResponse({"ready": False, "detail": why_not}, 503)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request, authenticator: AuthDep) -> Response:
    """Return metrics for Prometheus; off loopback this needs a token."""
    if not authenticator.loopback:
        caller_of(request, None)
    text, kind = request.app.state.metrics.page()
    return Response(text, media_type=kind)
