"""Sign-in to the dashboard by an OpenID provider: from the button of the login page to a one-time login code.

No cookie ties the way back to the browser that began: the page keeps a verifier of its own in the storage of its
tab, and the login code is worth nothing without it. See ADR 19.
"""

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cranny.service.auth import Authenticator
from cranny.service.limits import ForbiddenError
from cranny.service.oidc_provider import IdTokenError, OidcProvider, ProviderError

PENDING_S = 600.0  # in which a user signs in at the provider
MOST_PENDING = 1_000
MOST_OF_CLIENT = 50
CODE_S = 60.0  # in which the page uses its code
MAX_TEXT = 4096  # of a code or state

_log = logging.getLogger("cranny.service")


class PendingLogin(NamedTuple):
    """A sign-in that a browser has begun."""

    nonce: str
    code_verifier: str  # of PKCE: by which the provider knows that we began it
    page_verifier: str  # by which we know the tab that did
    client: str
    until_s: float


class Begun(NamedTuple):
    """What a page gets to begin with: where to go, and the verifier that it keeps."""

    url: str
    verifier: str


class PendingLogins:
    """Sign-ins under way, by state: bounded in time and number, and no client can use up the places of others."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._by_state: dict[str, PendingLogin] = {}  # in the order of time

    def __len__(self) -> int:
        return len(self._by_state)

    def add(self, state: str, client: str) -> PendingLogin:
        """Begin a sign-in; the oldest of the same client, or of the one with the most, makes room."""
        nonce, code_verifier, page_verifier = (secrets.token_urlsafe(32) for _ in range(3))
        made = PendingLogin(nonce, code_verifier, page_verifier, client, self._now() + PENDING_S)
        with self._lock:
            for late in [key for key, each in self._by_state.items() if each.until_s <= self._now()]:
                del self._by_state[late]
            of_client = Counter(each.client for each in self._by_state.values())
            if of_client[client] >= MOST_OF_CLIENT:
                self._drop_oldest(client)
            elif len(self._by_state) >= MOST_PENDING:
                self._drop_oldest(of_client.most_common(1)[0][0])
            self._by_state[state] = made
        return made

    def take(self, state: str) -> PendingLogin | None:
        """Return the sign-in of a state, once."""
        with self._lock:
            found = self._by_state.pop(state, None)
        return found if found is not None and found.until_s > self._now() else None

    def _drop_oldest(self, client: str) -> None:
        del self._by_state[next(state for state, each in self._by_state.items() if each.client == client)]


class OidcLogin:
    """Signs users in by a provider."""

    def __init__(self, provider: OidcProvider, authenticator: Authenticator) -> None:
        self.name = provider.settings.name
        self.origin = provider.settings.redirect_base
        self.pending = PendingLogins()
        self._provider = provider
        self._authenticator = authenticator

    async def begin(self, client: str) -> Begun:
        """Begin a sign-in for the page of a client."""
        state = secrets.token_urlsafe(32)
        begun = self.pending.add(state, client)
        try:
            url = await self._provider.authorization_url(state, begun.nonce, begun.code_verifier)
        except ProviderError as error:
            self.pending.take(state)
            _log.warning("sign-in with %s: %s", self.name, error)
            raise ProviderError(f"{self.name} cannot be reached; try again, or use a token") from None
        return Begun(url, begun.page_verifier)

    async def finish(self, answer: Mapping[str, str]) -> str:
        """Return the fragment of the page for a browser that the provider has sent back."""
        begun = self.pending.take(answer.get("state", ""))
        if begun is None:
            return "#/?sign-in=expired"
        try:
            return await self._code(begun, answer)
        except (ProviderError, IdTokenError, ForbiddenError) as error:
            _log.warning("sign-in with %s: %s", self.name, error)
            why = {ProviderError: "unreachable", ForbiddenError: "refused"}
            return f"#/?sign-in={why.get(type(error), 'invalid')}"

    async def _code(self, begun: PendingLogin, answer: Mapping[str, Any]) -> str:
        await self._provider.check_issuer(answer.get("iss"))
        code = answer.get("code")
        if not code or "error" in answer:
            raise IdTokenError(f"the provider has answered {answer.get('error', 'without a code')!r}")
        claims = await self._provider.claims_of(code, begun.code_verifier, begun.nonce)
        caller = self._provider.settings.caller(claims)
        return f"#/login?code={self._authenticator.bound_code(caller, begun.page_verifier, CODE_S, 'oidc')}"
