"""How commands talk to a server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cranny.model.errors import CrannyError, InputError

if TYPE_CHECKING:
    import httpx

ServerOption = Annotated[
    str | None,
    typer.Option("--server", help="Address of the server (default: CRANNY_SERVER, or the one started here)."),
]
TokenOption = Annotated[
    Path | None, typer.Option("--token-file", help="File with your token (default: CRANNY_TOKEN).")
]
WRONG = frozenset({400, 404, 422})  # what the user wrote cannot be used


class Remote:
    """A server, asked over HTTP."""

    def __init__(self, server: str | None, token_file: Path | None) -> None:
        from cranny.cli.serve import needs_service

        needs_service()
        from cranny.service.whereabouts import find_server

        known = find_server(server, token_file)
        self.url = known.url
        self._headers = {"Authorization": f"Bearer {known.token}"} if known.token else {}

    def get(self, path: str, **query: Any) -> Any:
        """Ask for something."""
        params = {name: value for name, value in query.items() if value is not None}
        return self._answer("GET", path, params=params)

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Have something done."""
        return self._answer(method, path, json=body, headers=headers)

    def stream(self, path: str, **query: Any) -> Iterator[tuple[str, Any]]:
        """Yield server-sent events as they come: their kind and data."""
        import httpx

        params = {name: value for name, value in query.items() if value is not None}
        try:
            with self._client() as client, client.stream("GET", path, params=params) as response:
                if response.is_error:
                    response.read()
                    raise _error(response)
                kind = ""
                for line in response.iter_lines():
                    if line.startswith("event: "):
                        kind = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        yield kind, json.loads(line.removeprefix("data: "))
        except httpx.TransportError as error:
            raise CrannyError(f"{self.url}: {error or type(error).__name__}") from None

    def _client(self) -> "httpx.Client":
        import httpx

        secure = self.url.startswith("https:")  # loading certificates takes longer than most requests
        timeout = httpx.Timeout(30.0, read=60.0)
        return httpx.Client(base_url=self.url, headers=self._headers, timeout=timeout, verify=secure)

    def _answer(self, method: str, path: str, **given: Any) -> Any:
        import httpx

        try:
            with self._client() as client:
                response = client.request(method, path, **given)
        except httpx.TransportError as error:
            raise CrannyError(f"{self.url}: {error or type(error).__name__}; is `cranny serve` running?") from None
        if response.is_error:
            raise _error(response)
        return response.json() if response.content else None


def _error(response: "httpx.Response") -> CrannyError:
    """Turn an answer into the error it stands for."""
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the server answered {response.status_code}"
    return InputError(detail) if response.status_code in WRONG else CrannyError(detail)
