"""Dependencies of routes: the service, the authenticated caller, and waiting for results of the service loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from cranny.service.audit import AuditLog
from cranny.service.auth import ROLES, Authenticator, Caller, Role, UnauthenticatedError
from cranny.service.connection_limit import USER
from cranny.service.job_lookup import find_job
from cranny.service.job_record import JobRecord
from cranny.service.limits import BusyError, ForbiddenError
from cranny.service.service import Service
from cranny.service.user_rights import Rights

BEGIN_S = 10.0  # within which the service loop must have begun a call

T = TypeVar("T")
_bearer = HTTPBearer(auto_error=False, description="A token of `cranny token create`.")


def service_of(request: Request) -> Service:
    """Return the service of the application."""
    found: Service = request.app.state.service
    return found


def authenticator_of(request: Request) -> Authenticator:
    """Return the authenticator of the application."""
    found: Authenticator = request.app.state.authenticator
    return found


def audit_of(request: Request) -> AuditLog:
    """Return the audit log of the application."""
    found: AuditLog = request.app.state.audit
    return found


def credential_of(request: Request) -> str:
    """Return the token or session of a request.

    Browsers send cookies to all ports of a host, also to those where jobs listen; so none are used or accepted.
    """
    kind, _, credential = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not credential.strip():
        raise UnauthenticatedError("token required: Authorization: Bearer TOKEN")
    return credential.strip()


def caller_of(request: Request, _documented: Annotated[object, Depends(_bearer)]) -> Caller:
    """Return the authenticated caller, or refuse the request."""
    caller = authenticator_of(request).by_bearer(credential_of(request))
    request.scope[USER] = caller.user
    return caller


async def still_known(request: Request) -> Caller:
    """Authenticate the caller of an event stream again; a thread is used only if the database must be read."""
    if authenticator_of(request).fresh:
        return caller_of(request, None)
    return await run_in_threadpool(caller_of, request, None)


def at_least(role: Role) -> Callable[[Caller], Caller]:
    """Return a dependency that requires a role."""

    def check(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        if ROLES.index(caller.role) < ROLES.index(role):
            raise ForbiddenError(f"role {role} required; this caller has {caller.role}")
        return caller

    return check


async def answered(service: Service, asked: "Future[T]") -> T:
    """Wait for the result of a call; one that the service loop has not begun in time is withdrawn."""
    answer = asyncio.wrap_future(asked)
    await asyncio.wait({answer}, timeout=BEGIN_S)
    if not answer.done() and asked.cancel():
        raise BusyError(f"{service.why_not_ready or 'server busy'}; the request was not accepted, retry")
    return await answer


async def prepared(name: str, ready: "Future[None]", refused: str) -> None:
    """Wait for the warm-up of a policy, which continues after a timeout."""
    _, late = await asyncio.wait({asyncio.wrap_future(ready)}, timeout=BEGIN_S)
    if late:
        raise BusyError(f"policy {name} is warming up; {refused}, retry")


ServiceDep = Annotated[Service, Depends(service_of)]
AuditDep = Annotated[AuditLog, Depends(audit_of)]
AuthDep = Annotated[Authenticator, Depends(authenticator_of)]
AnyCaller = Annotated[Caller, Depends(caller_of)]
UserCaller = Annotated[Caller, Depends(at_least("user"))]
AdminCaller = Annotated[Caller, Depends(at_least("admin"))]


def rights_of(service: Service, caller: Caller) -> Rights | None:
    """Return the rights by which jobs of a caller are checked; None for administrators, who may do everything."""
    return None if caller.role == "admin" else service.rights


def visible_job(service: Service, caller: Caller, job_id: str) -> JobRecord:
    """Return a job; users get only their own."""
    record = find_job(service, job_id)
    if caller.role == "user" and caller.user != record.user:
        raise ForbiddenError(f"{record.id} belongs to another user")
    return record
