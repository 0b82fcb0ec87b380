"""The HTTP client of the commands: requests to a server, jobs and logs followed, also while it restarts."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cranny.cli import options
from cranny.cli.console import print_json, say, warn
from cranny.cli.options import option
from cranny.model.errors import CrannyError, InputError

if TYPE_CHECKING:
    import httpx

ServerOption = Annotated[
    str | None,
    option(
        "--server",
        "Address of the server, or several with commas (default: CRANNY_SERVER, or the one started here).",
    ),
]
TokenOption = Annotated[Path | None, option("--token-file", "File with your token (default: CRANNY_TOKEN).")]
WRONG = frozenset({400, 404, 422})  # the user's input is wrong
AWAY = frozenset({502, 503, 504})  # the server is unavailable
AWAY_S = 60.0  # how long to wait for a server that is unreachable
BUSY_S = 600.0  # how long to retry a busy server, such as one that compiles a policy for the first time
PAUSE_S = 0.5
TAKEOVER_S = 15.0  # how long one of several servers may take to replace another
OVER = frozenset({"done", "failed", "cancelled"})
POLL_S = 0.5  # between two requests for more of a log
CHUNK = 1024 * 1024  # bytes of a log


class UnreachableError(CrannyError):
    """The server is unreachable now; a retry may succeed."""


class RetryLaterError(UnreachableError):
    """The server is busy and asks for a retry; the request had no effect."""


class ServiceClient:
    """A client of the REST interface."""

    def __init__(self, server: str | None, token_file: Path | None) -> None:
        from cranny.cli.serve import needs_service

        needs_service()
        given = server or os.environ.get("CRANNY_SERVER") or ""
        self._servers = [each.strip() for each in given.split(",") if each.strip()]  # of which one serves
        self._given = server, token_file
        self._find()

    def _find(self) -> None:
        """Find URL and token of the server; both may change with a restart."""
        from cranny.service.server_file import find_server

        _, token_file = self._given
        self.url, token = find_server(self._servers[0] if self._servers else None, token_file)
        token = None if token is None else token.strip()
        where = f"--token-file: {token_file}" if token_file is not None else "CRANNY_TOKEN"
        if token == "" and token_file is not None:
            raise InputError(f"{where}: is empty")
        # What cannot be a token is not sent anywhere, and never printed.
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise InputError(f"{where}: not a token: must be one line of letters, digits, - and _")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._answer("GET", path, params=given)

    def get_in_time(self, path: str, **query: Any) -> Any:
        """Send a GET request, and retry for a while if the server is unreachable."""
        patience = _RetryBudget(AWAY_S)
        while True:
            try:
                answer = self.get(path, **query)
            except UnreachableError as error:
                self._wait(patience, error)
            else:
                patience.back()
                return answer

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Send a request, and retry while the server is busy."""
        patience = _RetryBudget(BUSY_S)
        while True:
            try:
                return self._answer(method, path, json=body, headers=headers)
            except RetryLaterError as error:
                patience.wait(error)

    def changes(self, after: int) -> Iterator[tuple[str, Any]]:
        """Yield kind and data of the events after a number, as they happen.

        If the connection is lost, it is resumed after the last event received.
        """
        patience = _RetryBudget(AWAY_S)
        while True:
            try:
                for number, kind, data in self._stream("/api/v1/events", after):
                    patience.back()
                    if number is not None:
                        after = number
                        yield kind, data
            except UnreachableError as error:
                self._wait(patience, error)

    def _wait(self, patience: "_RetryBudget", error: UnreachableError) -> None:
        patience.wait(error)
        try:
            self._next_server()
        except InputError:  # the server has not written its address yet
            return

    def _next_server(self) -> None:
        """Ask the next of several servers from now on: another one may have taken over."""
        self._servers = self._servers[1:] + self._servers[:1]
        self._find()

    def _stream(self, path: str, after: int) -> Iterator[tuple[int | None, str, Any]]:
        """Yield server-sent events with their numbers; keep-alives have none."""
        import httpx

        headers = {"Last-Event-ID": str(after)}
        try:
            with self._client() as client, client.stream("GET", path, headers=headers) as response:
                if response.is_error:
                    response.read()
                    raise self._error(response)
                number, kind = after, ""
                for line in response.iter_lines():
                    if line.startswith("id: "):
                        number = int(line.removeprefix("id: "))
                    elif line.startswith("event: "):
                        kind = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        yield number, kind, json.loads(line.removeprefix("data: "))
                    elif line == ": still here":
                        yield None, "", None
                raise UnreachableError(f"{self.url}: the server closed the connection")  # only when it shuts down
        except httpx.TransportError as error:
            raise UnreachableError(f"{self.url}: {error or type(error).__name__}") from None

    def _client(self) -> "httpx.Client":
        import httpx

        secure = self.url.startswith("https:")  # loading certificates takes longer than most requests
        timeout = httpx.Timeout(30.0, read=60.0)
        try:
            return httpx.Client(base_url=self.url, headers=self._headers, timeout=timeout, verify=secure)
        except httpx.InvalidURL as error:
            raise InputError(f"--server: {self.url}: {error}") from None

    def _answer(self, method: str, path: str, **given: Any) -> Any:
        import httpx

        try:
            response = self._first_response(method, path, **given)
        except httpx.TransportError as error:
            problem = f"{error or type(error).__name__}; is `cranny serve` running?"
            raise UnreachableError(f"{self.url}: {problem}") from None
        if response.is_error:
            raise self._error(response)
        try:
            return response.json() if response.content else None
        except ValueError:
            raise CrannyError(f"{self.url}: invalid response; is this `cranny serve`?") from None

    def _first_response(self, method: str, path: str, **given: Any) -> "httpx.Response":
        """Send a request to the first of several servers that accepts connections; one may be taking over now."""
        import httpx

        until_s, tries = time.monotonic() + TAKEOVER_S, 0
        while True:
            try:
                with self._client() as client:
                    return client.request(method, path, **given)
            except httpx.ConnectError:  # nothing was sent
                if len(self._servers) < 2 or time.monotonic() > until_s:
                    raise
            self._next_server()
            tries += 1
            if tries % len(self._servers) == 0:
                time.sleep(PAUSE_S)

    def _error(self, response: "httpx.Response") -> CrannyError:
        """Return the error that a response stands for."""
        status = response.status_code
        try:
            detail = str(response.json()["detail"])
        except (ValueError, KeyError, TypeError):
            detail = f"{self.url}: the server answered {status}"
        if status == HTTPStatus.UNAUTHORIZED and self._given[1] is None and not os.environ.get("CRANNY_TOKEN"):
            return UnreachableError(detail)  # the token that a server writes for its owner ends with the server
        if status in AWAY:
            return RetryLaterError(detail) if "Retry-After" in response.headers else UnreachableError(detail)
        return InputError(detail) if status in WRONG else CrannyError(detail)


@dataclass
class Remote:
    """The server that a command asks, and how the command prints the answer."""

    server: ServerOption = None
    token_file: TokenOption = None
    as_json: options.JsonOption = False

    @cached_property
    def client(self) -> ServiceClient:
        """The client of the server, which is looked up when it is first needed."""
        return ServiceClient(self.server, self.token_file)

    def show(self, answer: Any, *lines: str) -> None:
        """Print an answer as JSON if that was asked for, otherwise as lines of text."""
        print_json(answer) if self.as_json else say(*lines)


remote_options = options.expand_options(Remote, "remote")  # for commands that take `remote: Remote`


class _RetryBudget:
    """Retries for a limited time, and reports that on standard error."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._until_s: float | None = None

    def wait(self, error: UnreachableError) -> None:
        """Wait before the next retry, or raise if the time is over."""
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + self._most_s
            warn(str(error))
            warn(f"retrying for {self._most_s:g} s")
        elif now_s >= self._until_s:
            raise CrannyError(f"no success after {self._most_s:g} s: {error}") from None
        time.sleep(PAUSE_S)

    def back(self) -> None:
        """Reset after a response."""
        if self._until_s is not None:
            self._until_s = None
            warn("reconnected to the server")


def path_of(job_id: str) -> str:
    """Return the URL path of a job."""
    return f"/api/v1/jobs/{quote(job_id, safe='')}"


def state(job: dict[str, Any]) -> str:
    """Describe the state of a job in a few words."""
    status, reason = job["status"], job["reason"]
    if reason.startswith(f"{status} "):  # "failed with exit code 1" contains both
        return str(reason)
    where = f" on {', '.join(job['machines'])}" if job["machines"] and status not in OVER else ""
    return f"{status}{where}" + (f": {reason}" if reason else "")


def changes(remote: ServiceClient, job_id: str | None, *, known: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield events from now on; those of one job until it is over, and how it ended if it already is.

    If the server is `known` to exist, it may be unreachable at first.
    """
    get = remote.get_in_time if known else remote.get
    since = get("/api/v1/cluster")["seq"]  # first, so that no event is missed
    if job_id is None:
        yield from remote.changes(since)
        return
    job = get(path_of(job_id))
    if job["status"] in OVER:
        end = {name: job[name] for name in ("status", "reason", "exit_code")}
        yield "over", {"seq": since, "at_s": job["ended_s"], "kind": "over", "job": job["id"], **end}
        return
    for kind, event in remote.changes(since):
        if event["job"] == job_id:
            yield kind, event
            if event.get("status", kind) in OVER or event.get("ended"):
                return


def written(remote: ServiceClient, job_id: str, rank: int, attempt: int | None) -> Iterator[Any]:
    """Yield the log of a rank part by part; the last part is empty."""
    offset, path = 0, f"{path_of(job_id)}/logs"
    while True:
        part = remote.get(path, rank=rank, attempt=attempt, offset=offset, limit=CHUNK)
        _warn_of_gap(job_id, offset, part)
        yield part
        if part["next_offset"] == offset:
            return
        attempt, offset = part["attempt"], part["next_offset"]


def _warn_of_gap(job_id: str, offset: int, part: Any) -> None:
    """Say that output was deleted before it could be read: only the newest is kept."""
    if part["offset"] > offset:
        warn(f"{job_id}: {part['offset'] - offset} bytes are not kept: the log is limited (--log-limit-mb)")


def writes(remote: ServiceClient, job_id: str, rank: int, attempt: int | None) -> Iterator[Any]:
    """Yield the log of a rank as it grows: of one attempt, or of one after the other until the job is over."""
    job = remote.get(path_of(job_id))
    at, offset = attempt or job["attempt"], 0
    if not at and job["status"] not in OVER:
        warn(f"{job_id} has not started: {state(job)}")
    while True:
        over = job["status"] in OVER  # before the log is read, so that nothing is missed
        if at:
            given = {"rank": rank, "attempt": at, "offset": offset, "limit": CHUNK}
            part = remote.get_in_time(f"{path_of(job_id)}/logs", **given)
            if part["text"]:
                _warn_of_gap(job_id, offset, part)
                yield part
                offset = part["next_offset"]
                continue
            if part["ended"] and attempt is not None:
                return
            if part["ended"] and at < job["attempt"]:
                at, offset = at + 1, 0
                warn(f"{job_id} continues: attempt {at}")
                continue
        elif over:
            raise CrannyError(f"{job_id} never started: {state(job)}")
        if over:
            return
        time.sleep(POLL_S)
        job = remote.get_in_time(path_of(job_id))
        at = at or min(1, job["attempt"])
