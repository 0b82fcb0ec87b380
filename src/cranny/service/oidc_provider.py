"""An OpenID provider as its client sees it: what it publishes, and codes turned into id tokens that are verified.

The protocol and the cryptography are Authlib's and joserfc's. Requests are sent here, without blocking a thread,
and bounded in time, number and size: a slow provider leaves other ways to log in as they are.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from cranny.service.limits import RequestError
from cranny.service.oidc_settings import OidcSettings, secure

# With a public key only: a provider that also accepts HS256 could be fooled with its public key as the secret.
ALGORITHMS = tuple(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512))
ANSWER_S = 8.0  # within which the provider must have answered
AT_ONCE = 8  # requests to it
MOST_BYTES = 1024 * 1024
KEEP_S = 3600.0  # what the provider publishes
KEYS_AGAIN_S = 30.0  # between two readings of its keys because of a key that is not known
LEEWAY_S = 60  # between its clock and ours
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(RequestError, status=502):
    """The OpenID provider does not answer, or not as it should."""


class IdTokenError(RequestError, status=401):
    """What the provider sent, or something in its place, is no proof of who signs in."""


@dataclass
class _Published:
    """Something that the provider publishes, as it was read last."""

    value: dict[str, Any] | None = None
    read_s: float = field(default=-KEEP_S)

    def fresh(self, now_s: float, keep_s: float = KEEP_S) -> bool:
        """Return whether it was read lately."""
        return self.value is not None and now_s - self.read_s < keep_s


class OidcProvider:
    """The provider of a file of settings; nothing is asked of it before the first sign-in."""

    def __init__(self, settings: OidcSettings, secret: str | None, clock: Callable[[], float]) -> None:
        self.settings = settings
        self._secret = secret
        self._clock = clock
        self._metadata = _Published()
        self._keys = _Published()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tls: ssl.SSLContext | None = None

    async def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Return where a browser signs in."""
        metadata = await self._discover()

        def build() -> str:
            from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
            from authlib.oauth2.rfc7636 import create_s256_code_challenge

            return str(
                prepare_grant_uri(
                    metadata["authorization_endpoint"],
                    client_id=self.settings.client_id,
                    response_type="code",
                    redirect_uri=self.settings.redirect_uri,
                    scope=" ".join(self.settings.scopes),
                    state=state,
                    nonce=nonce,
                    code_challenge=create_s256_code_challenge(verifier),
                    code_challenge_method="S256",
                )
            )

        return await asyncio.to_thread(build)  # the first import takes a second

    async def check_issuer(self, named: str | None) -> None:
        """Refuse an answer that another issuer gave, or that hides who gave it (RFC 9207)."""
        metadata = await self._discover()
        must = metadata.get("authorization_response_iss_parameter_supported") is True
        if named != self.settings.issuer and (named is not None or must):
            raise IdTokenError(f"the answer is of the issuer {named!r}")

    async def claims_of(self, code: str, verifier: str, nonce: str) -> Mapping[str, Any]:
        """Turn a code into an id token, and return what it says once that is verified."""
        tokens = await self._exchange(code, verifier)
        id_token, access_token = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(id_token, str):
            raise IdTokenError(f"no id token: {tokens.get('error', 'the scope openid was not granted')}")
        access = access_token if isinstance(access_token, str) else None
        known = self._keys.fresh(self._monotonic())
        try:
            return await asyncio.to_thread(self._verified, id_token, access, nonce, await self._read_keys())
        except _UnknownKeyError:
            if not known or self._keys.fresh(self._monotonic(), KEYS_AGAIN_S):
                raise
        keys = await self._read_keys(again=True)  # the provider has new ones
        return await asyncio.to_thread(self._verified, id_token, access, nonce, keys)

    def _verified(
        self, id_token: str, access_token: str | None, nonce: str, keys: dict[str, Any]
    ) -> Mapping[str, Any]:
        """Check signature, issuer, audience, times, nonce and the hash of the access token."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError
        from joserfc.jwk import KeySet
        from joserfc.jws import JWSRegistry

        exact = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        given = {"nonce": nonce, "client_id": self.settings.client_id, "access_token": access_token}
        try:
            registry = JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
            token = jwt.decode(id_token, KeySet.import_key_set(keys), registry=registry)  # type: ignore[arg-type]
            claims = CodeIDToken(token.claims, token.header, exact, given)
            claims.validate(now=int(self._clock()), leeway=LEEWAY_S)
        except InvalidKeyIdError as error:
            raise _UnknownKeyError(f"id token refused: {error}") from None
        except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise IdTokenError(f"id token refused: {error}") from None
        return dict(claims)

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        from authlib.oauth2.auth import ClientAuth
        from authlib.oauth2.rfc6749.parameters import prepare_token_request

        metadata = await self._discover()
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        method = method if self._secret is not None else "none"
        auth = ClientAuth(self.settings.client_id, self._secret, method)
        body = prepare_token_request(
            "authorization_code", code=code, redirect_uri=self.settings.redirect_uri, code_verifier=verifier
        )
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        url, headers, body = auth.prepare("POST", metadata["token_endpoint"], headers, body)
        status, answer = await self._ask("POST", url, headers, body)
        if status != HTTPStatus.OK:
            raise IdTokenError(f"the provider refused the code: {answer.get('error', status)}")
        return answer

    async def _discover(self) -> dict[str, Any]:
        """Return what the provider publishes about itself."""
        if not self._metadata.fresh(self._monotonic()):
            url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            status, found = await self._ask("GET", url)
            issuer = found.get("issuer")
            if status != HTTPStatus.OK or issuer != self.settings.issuer:
                said = f"status {status}" if status != HTTPStatus.OK else f"issuer {str(issuer)[:200]!r}"
                raise ProviderError(f"{url} answers with {said}, not as the issuer {self.settings.issuer!r}")
            for name in ENDPOINTS:
                try:
                    secure(str(found.get(name)).partition("?")[0])
                except ValueError:
                    raise ProviderError(f"{url}: {name} is no URL with https") from None
            self._metadata = _Published(found, self._monotonic())
        return self._metadata.value or {}

    async def _read_keys(self, *, again: bool = False) -> dict[str, Any]:
        if again or not self._keys.fresh(self._monotonic()):
            metadata = await self._discover()
            status, found = await self._ask("GET", metadata["jwks_uri"])
            if status != HTTPStatus.OK or not isinstance(found.get("keys"), list):
                raise ProviderError(f"{metadata['jwks_uri']} has no keys")
            self._keys = _Published(found, self._monotonic())
        return self._keys.value or {}

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a request; return the status, and the object that was answered."""
        import httpx  # which a service without a provider does not need

        try:
            async with asyncio.timeout(ANSWER_S), self._slots:
                if self._tls is None:
                    self._tls = await asyncio.to_thread(httpx.create_ssl_context)
                async with (
                    httpx.AsyncClient(verify=self._tls, timeout=ANSWER_S) as client,
                    client.stream(method, url, headers=headers, content=body) as answer,
                ):
                    content = b""
                    async for part in answer.aiter_bytes():
                        content += part
                        if len(content) > MOST_BYTES:
                            raise ProviderError(f"{url} answers with more than {MOST_BYTES // 1024} KiB")
        except TimeoutError:
            raise ProviderError(f"{url} has not answered within {ANSWER_S:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ProviderError(f"{url} cannot be reached: {error or type(error).__name__}") from None
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        return answer.status_code, found if isinstance(found, dict) else {}

    @staticmethod
    def _monotonic() -> float:
        return time.monotonic()


class _UnknownKeyError(IdTokenError, status=401):
    """The id token is signed with a key that was not published when keys were read."""
