"""What every route needs: the service, and who asks."""

from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from cranny.service.auth import ROLES, Authenticator, Caller, Role, UnauthenticatedError
from cranny.service.job_records import JobRecord
from cranny.service.limits import ForbiddenError
from cranny.service.service import Service

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

_bearer = HTTPBearer(auto_error=False, description="A token of `cranny token create`.")


def service_of(request: Request) -> Service:
    """Return the service that a request goes to."""
    found: Service = request.app.state.service
    return found


def authenticator_of(request: Request) -> Authenticator:
    """Return who knows the tokens."""
    found: Authenticator = request.app.state.authenticator
    return found


def cookie_of(request: Request) -> str:
    """Return the name of a session's cookie; it has our port, since browsers give all ports of a host one jar."""
    server = request.scope.get("server")
    return f"cranny_session_{server[1]}" if server else "cranny_session"


def caller_of(request: Request, _documented: Annotated[object, Depends(_bearer)]) -> Caller:
    """Return who asks, or refuse to answer a stranger."""
    authenticator = authenticator_of(request)
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token:
        return authenticator.by_token(token.strip())
    session = request.cookies.get(cookie_of(request))
    if session is None:
        raise UnauthenticatedError("a token is needed: Authorization: Bearer TOKEN")
    caller = authenticator.by_session(session)
    if request.method not in SAFE and not _same_origin(request):
        raise ForbiddenError("a page of another site may not ask for this")
    return caller


async def still_known(request: Request) -> Caller:
    """Return who asks, again and again while a stream goes on; a thread is needed only to ask the database."""
    if authenticator_of(request).fresh:
        return caller_of(request, None)
    return await run_in_threadpool(caller_of, request, None)


def _same_origin(request: Request) -> bool:
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host")


def at_least(role: Role) -> Callable[[Caller], Caller]:
    """Return what refuses those who may do less than a role."""

    def check(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        if caller.rank < ROLES.index(role):
            raise ForbiddenError(f"this needs the role {role}; yours is {caller.role}")
        return caller

    return check


def may_see(caller: Caller, record: JobRecord) -> JobRecord:
    """Refuse a user who asks for a job of somebody else."""
    if caller.role == "user" and caller.user != record.user:
        raise ForbiddenError(f"{record.id} is a job of somebody else")
    return record


ServiceDep = Annotated[Service, Depends(service_of)]
AuthDep = Annotated[Authenticator, Depends(authenticator_of)]
AnyCaller = Annotated[Caller, Depends(caller_of)]
UserCaller = Annotated[Caller, Depends(at_least("user"))]
AdminCaller = Annotated[Caller, Depends(at_least("admin"))]
