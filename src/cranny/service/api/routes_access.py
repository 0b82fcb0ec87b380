"""The routes about tokens, sessions and the health of the service."""

from typing import Annotated, Any, Self

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import Field, model_validator

from cranny.model.yaml_file import Fields, Name
from cranny.service.api.dependencies import (
    AdminCaller,
    AnyCaller,
    AuditDep,
    AuthDep,
    ServiceDep,
    caller_of,
    credential_of,
)
from cranny.service.api.sse import audited
from cranny.service.audit import KINDS, about
from cranny.service.auth import MAX_VALID_DAYS, Role, UnauthenticatedError, is_session
from cranny.service.limits import ConflictError, NotFoundError
from cranny.service.store import TokenRow

router = APIRouter(tags=["access"])


Credential = Annotated[str, Field(min_length=1, max_length=200)]


class TokenRequest(Fields):
    """User, role and validity of a new token."""

    user: Name
    role: Role = "user"
    valid_days: Annotated[float, Field(gt=0, le=MAX_VALID_DAYS)] | None = None


class SessionRequest(Fields):
    """What to open a session with: a token, or a one-time code, with the verifier of the page if it is bound."""

    token: Credential | None = None
    code: Credential | None = None
    verifier: Credential | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.token is None) == (self.code is None):
            raise ValueError("give either a token or a code")
        return self


@router.get("/api/v1/tokens")
def tokens(service: ServiceDep, _caller: AdminCaller) -> Any:
    """List tokens, without their text."""
    return {"tokens": [_public(row) for row in service.store.tokens()]}


def _public(row: TokenRow) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name != "hash"}


@router.post("/api/v1/tokens", status_code=201)
def create_token(body: TokenRequest, authenticator: AuthDep, audit: AuditDep, caller: AdminCaller) -> Any:
    """Create a token; its text is returned only now."""
    row, token = authenticator.create_token(body.user, body.role, body.valid_days)
    audit.record("token-created", caller.user, **about(row))
    return {**_public(row), "token": token}


@router.delete("/api/v1/tokens/{token_id}", status_code=204)
def revoke_token(token_id: str, authenticator: AuthDep, audit: AuditDep, caller: AdminCaller) -> Response:
    """Revoke a token."""
    if not authenticator.revoke_token(token_id):
        raise NotFoundError(f"no valid token {token_id!r}")
    audit.record("token-revoked", caller.user, token=token_id)
    return Response(status_code=204)


@router.get("/api/v1/audit")
def audit_events(
    service: ServiceDep,
    _caller: AdminCaller,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Any:
    """List logins, tokens and actions of administrators, the latest first."""
    rows = service.store.latest(KINDS, before, limit)
    events = [audited(row, service) for row in rows]
    return {"events": events, "next": rows[-1].seq if len(rows) == limit else None}


@router.post("/api/v1/session", status_code=201)
def begin(body: SessionRequest, request: Request, authenticator: AuthDep, audit: AuditDep) -> Any:
    """Open a browser session; its secret, returned only now, is sent like a token."""
    address = request.client.host if request.client is not None else ""
    try:
        if body.token is not None:
            opened = authenticator.log_in(body.token)
        else:
            opened = authenticator.redeem(body.code or "", body.verifier)
    except UnauthenticatedError:
        audit.refused(address)
        raise
    audit.logged_in(opened.caller, address, opened.method)
    return {"session": opened.secret, "until_s": opened.until_s, **opened.caller._asdict()}


@router.delete("/api/v1/session", status_code=204)
def end(request: Request, authenticator: AuthDep, audit: AuditDep, caller: AnyCaller) -> Response:
    """End the session that this request is sent with."""
    credential = credential_of(request)
    if not is_session(credential):
        raise ConflictError("this request has a token and no session; revoke the token to end it")
    authenticator.log_out(credential)
    audit.record("logged-out", caller.user)
    return Response(status_code=204)


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
