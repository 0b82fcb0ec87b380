"""Errors as responses: problem+json (RFC 9457) with one clear line, and never a traceback."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cranny.model.errors import CrannyError, InputError, PlacementError
from cranny.service.job_spec_errors import field_errors
from cranny.service.limits import BusyError, ConflictError, RequestError
from cranny.service.scheduler import PolicyError
from cranny.service.writer_lock import StoreError

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
