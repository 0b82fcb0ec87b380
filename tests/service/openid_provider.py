"""A small OpenID provider on loopback: authorization code with PKCE, and faults that tests switch on."""

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core.util import create_half_hash
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "cranny", "between-us"
USER = {"sub": "u-1", "preferred_username": "alice", "email": "alice@example.org", "email_verified": True}


class OpenIdProvider:
    """What the provider knows: its key, its user, the codes that it has given."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "first"})
        self.issuer = ""
        self.reset()

    def reset(self) -> None:
        """Forget all faults."""
        self.published: list[Any] = [self.key.as_dict(private=False)]
        self.user: dict[str, Any] = {**USER, "groups": ["ml-team"]}
        self.alter: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
        self.signed: Callable[[dict[str, Any]], str] = self.sign
        self.metadata: dict[str, Any] = {}
        self.delay = threading.Event()  # answers wait for it
        self.delay.set()
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []

    def sign(self, claims: dict[str, Any]) -> str:
        """Return an id token as it should be."""
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def approve(self, query: dict[str, str]) -> str:
        """Return where the browser of a user who has signed in goes."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.issuer}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def tokens(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Turn a code into tokens, once."""
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        asked = self.codes.pop(form.get("code", ""), None)
        proof = create_s256_code_challenge(form.get("code_verifier", ""))
        if authorization != f"Basic {basic}":
            return 401, {"error": "invalid_client"}
        if asked is None or asked["code_challenge"] != proof or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now, access = int(time.clock_gettime(time.CLOCK_REALTIME)), secrets.token_urlsafe(16)
        claims = {
            **self.user,
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            "at_hash": create_half_hash(access, "RS256").decode(),
        }
        id_token = self.signed(self.alter(claims))
        return 200, {"access_token": access, "token_type": "Bearer", "id_token": id_token}

    def discovery(self) -> dict[str, Any]:
        """Return what the provider publishes about itself."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            **self.metadata,
        }


class Handler(BaseHTTPRequestHandler):
    """Answers browsers and clients."""

    provider: ClassVar[OpenIdProvider]

    def do_GET(self) -> None:
        provider, parts = self.provider, urlsplit(self.path)
        provider.asked.append(parts.path)
        provider.delay.wait(60)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/.well-known/openid-configuration":
            self._send(200, provider.discovery())
        elif parts.path == "/jwks":
            self._send(200, {"keys": provider.published})
        elif parts.path == "/authorize":
            page = f'<title>provider</title><link rel="icon" href="data:,"><a href="/approve?{parts.query}">go</a>'
            self._send(200, page)
        elif parts.path == "/approve":
            self.send_response(303)
            self.send_header("Location", provider.approve(query))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(404, {})

    def do_POST(self) -> None:
        self.provider.asked.append(self.path)
        self.provider.delay.wait(60)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self._send(*self.provider.tokens(form, self.headers.get("Authorization", "")))

    def _send(self, status: int, content: object) -> None:
        page = isinstance(content, str)
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if page else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class QuietServer(ThreadingHTTPServer):
    """A server whose clients may go before they are answered."""

    def handle_error(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def openid_provider() -> Iterator[OpenIdProvider]:
    """Run a provider."""
    provider = OpenIdProvider()
    handler = type("OwnHandler", (Handler,), {"provider": provider})
    server = QuietServer(("127.0.0.1", 0), handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.delay.set()
        server.shutdown()
        thread.join(60)
        server.server_close()
