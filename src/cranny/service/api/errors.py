"""Errors as responses: problem+json (RFC 9457) with one clear line, and never a traceback."""

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cranny.model.errors import CrannyError, InputError, PlacementError
from cranny.service.job_spec import field_errors
from cranny.service.limits import BusyError, ConflictError, RequestError
from cranny.service.scheduler import PolicyError
from cranny.service.writer_lock import StoreError

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)

BODY_S = 60.0  # within which the request body must have arrived

_log = logging.getLogger("cranny.service")


def problem(
    status: int, detail: str, errors: list[dict[str, str]] | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return a problem+json response."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if errors:
        body["errors"] = errors
    if status == HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": "Bearer", **(headers or {})}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def status_of(error: CrannyError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, StoreError | PolicyError):
        return 503
    if isinstance(error, PlacementError):
        return ConflictError.status
    return 422 if isinstance(error, InputError) else 500


def add_handlers(app: FastAPI) -> None:
    """Answer every error with a problem."""

    async def refused(_request: Request, error: Any) -> JSONResponse:
        headers = {"Retry-After": "1"} if isinstance(error, BusyError) else None
        return problem(status_of(error), str(error), headers=headers)

    async def invalid(_request: Request, error: Any) -> JSONResponse:
        errors = []
        for each in error.errors():
            if each["type"] == "json_invalid":
                each |= {"loc": (), "type": "value_error", "ctx": {"error": "the body is not JSON"}}
            elif each["loc"] and each["loc"][0] in {"path", "query", "header", "cookie"}:  # the field says enough
                each["loc"] = each["loc"][1:]
            errors.append(each)
        found = field_errors(errors)
        first = next(iter(found), {"field": "", "problem": "cannot be read"})
        return problem(422, ": ".join(part for part in first.values() if part), found)

    async def http(_request: Request, error: Any) -> JSONResponse:
        return problem(error.status_code, str(error.detail))

    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s", request.method, request.url.path, exc_info=error)
        return problem(500, "internal error; see the server log")

    app.add_exception_handler(CrannyError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)


class RequestGuard:
    """Refuses oversized and slow bodies before a route reads them, adds security headers, and answers HEAD."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in HEADERS if each[0] not in there)]
            await send(message)

        length = dict(scope["headers"]).get(b"content-length", b"0")
        declared = int(length) if length.isdigit() and len(length) < 20 else self._most + 1
        chunks: list[Message] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                while declared <= self._most:
                    chunk = await receive()
                    chunks.append(chunk)
                    size += len(chunk.get("body", b""))
                    if size > self._most or not chunk.get("more_body", False):
                        break
        except TimeoutError:
            await problem(408, f"request body not received within {BODY_S:.0f} s")(scope, receive, careful)
            return
        if declared > self._most or size > self._most:
            await problem(413, f"request body larger than {self._most // 1024} KiB")(scope, receive, careful)
            return

        head = scope["method"] == "HEAD"  # answered as GET, without a body
        answered = False

        async def replay() -> Message:
            if chunks or not (head and answered):
                return chunks.pop(0) if chunks else await receive()
            return {"type": "http.disconnect"}  # ends a stream

        async def only_head(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                await careful(message)
            elif not answered:
                answered = True
                await careful({"type": "http.response.body", "body": b"", "more_body": False})

        if head:
            await self._app({**scope, "method": "GET"}, replay, only_head)
        else:
            await self._app(scope, replay, careful)
