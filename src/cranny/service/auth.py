"""Authentication and roles: bearer tokens and browser sessions, both stored only as hashes."""

import hashlib
import hmac
import ipaddress
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Literal, NamedTuple, cast, get_args

from cranny.model.errors import InputError
from cranny.service.clock import wall_clock
from cranny.service.limits import RequestError
from cranny.service.store import EventStore, SessionRow, TokenRow

Role = Literal["viewer", "user", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # higher ones may do more
CACHE_S = 2.0  # how long tokens and sessions are cached before they are read from the database again
PREFIX = "cranny_"
SESSION_PREFIX = "cranny-session_"  # by which a session differs from a token
SESSION_S = 12 * 3600.0
MAX_SESSIONS = 20  # of one user
MAX_VALID_DAYS = 3_650.0
DAY_S = 86_400.0


class UnauthenticatedError(RequestError, status=401):
    """No valid token or session was presented."""


class Caller(NamedTuple):
    """The authenticated user of a request."""

    user: str
    role: Role


class LoginCode(NamedTuple):
    """What a login code that can be used once stands for."""

    caller: Caller
    method: str  # by which the user got it, for the audit
    # Hash of what the page must present besides; None for a link, which anyone can open.
    verifier: str | None = None
    until_s: float = math.inf  # on the monotonic clock


class Session(NamedTuple):
    """A browser session that was just opened; its secret is available only now."""

    secret: str
    caller: Caller
    until_s: float
    method: str  # by which it was opened


def new_token() -> str:
    """Draw a token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(token: str) -> str:
    """Return the stored hash of a token; the token has 256 random bits, so an unsalted hash is safe."""
    return hashlib.sha256(token.encode()).hexdigest()


def create(
    store: EventStore, user: str, role: str, now_s: float, valid_days: float | None = None
) -> tuple[TokenRow, str]:
    """Create a token for a user, valid for some days or until it is revoked; its text is available only now."""
    if role not in ROLES:
        raise InputError(f"role must be viewer, user or admin, not {role!r}")
    if not 1 <= len(user) <= 100 or not user.isprintable():
        raise InputError("user must be printable text of 1 to 100 characters")
    if valid_days is not None and not 0 < valid_days <= MAX_VALID_DAYS:
        raise InputError(f"valid_days must be more than 0 and at most {MAX_VALID_DAYS:.0f}, not {valid_days:g}")
    token = new_token()
    expires_s = None if valid_days is None else now_s + valid_days * DAY_S
    row = TokenRow(secrets.token_hex(6), user, role, hashed(token), now_s, None, expires_s)
    store.add_token(row)
    return row, token


def is_session(credential: str) -> bool:
    """Return whether a credential is that of a browser session."""
    return credential.startswith(SESSION_PREFIX)


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Authenticator:
    """Resolves tokens and sessions to callers."""

    def __init__(self, store: EventStore, *, loopback: bool, clock: Callable[[], float] = wall_clock) -> None:
        self.loopback = loopback
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[str, TokenRow] = {}
        self._sessions: dict[str, SessionRow] = {}
        self._read_at = -CACHE_S
        self._own: dict[str, Caller] = {}  # tokens valid only in this process
        self._codes: dict[str, LoginCode] = {}  # by the hash of each
        self._revoked: dict[str, bool] | None = None  # by token, as far as seen
        self.on_token: list[Callable[[TokenRow], None]] = []  # get tokens created or revoked by other processes
        self._read()
        if not self._tokens and not loopback:
            raise InputError(
                "no token exists, and off loopback every request needs one; create one with `cranny token create`"
            )

    @property
    def has_tokens(self) -> bool:
        """Whether any token is stored."""
        return bool(self._tokens)

    def create_token(self, user: str, role: str, valid_days: float | None) -> tuple[TokenRow, str]:
        """Create a token for a user; its text is available only now."""
        with self._lock:
            row, token = create(self._store, user, role, self._clock(), valid_days)
            self._changed(row.id, revoked=False)
        return row, token

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a token; return whether a valid one was found."""
        with self._lock:
            found = self._store.revoke_token(token_id, self._clock())
            self._changed(token_id, revoked=True)
        return found

    def _changed(self, token_id: str, *, revoked: bool) -> None:
        if self._revoked is not None:
            self._revoked[token_id] = revoked
        self._read_at = -CACHE_S

    def process_token(self, user: str) -> str:
        """Return an admin token that is valid only while this process runs."""
        token = new_token()
        self._own[hashed(token)] = Caller(user, "admin")
        return token

    def one_time_code(self, caller: Caller) -> str:
        """Return a login code that can be used once."""
        return self._issue(LoginCode(caller, "link"))

    def bound_code(self, caller: Caller, verifier: str, valid_s: float, method: str) -> str:
        """Return a login code that is of use only for a short time, and only with a verifier."""
        return self._issue(LoginCode(caller, method, hashed(verifier), time.monotonic() + valid_s))

    def _issue(self, entry: LoginCode) -> str:
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes = {key: each for key, each in self._codes.items() if each.until_s > time.monotonic()}
            self._codes[hashed(code)] = entry
        return code

    def redeem(self, code: str, verifier: str | None = None) -> Session:
        """Exchange a one-time code for a session; a wrong verifier uses it up."""
        with self._lock:
            entry = self._codes.pop(hashed(code), None)
        if entry is None or entry.until_s <= time.monotonic():
            raise UnauthenticatedError("login link already used, or issued before the last restart")
        if entry.verifier is not None and not hmac.compare_digest(entry.verifier, hashed(verifier or "")):
            raise UnauthenticatedError("this sign-in was begun in another tab or browser; begin it here")
        return self._open_session(entry.caller, None, entry.method)

    def log_in(self, token: str) -> Session:
        """Open a browser session with a token; the session ends with the token."""
        caller, row = self.by_token(token), self._tokens.get(hashed(token))
        return self._open_session(caller, row, "token")

    def log_out(self, session: str) -> None:
        """End a session."""
        self._store.end_session(hashed(session))
        self.invalidate()

    def by_bearer(self, credential: str) -> Caller:
        """Return the caller of a session or a token."""
        return self.by_session(credential) if is_session(credential) else self.by_token(credential)

    def by_token(self, token: str) -> Caller:
        """Return the caller of a token."""
        key = hashed(token)
        if key in self._own:
            return self._own[key]
        self._refresh()
        if key not in self._tokens:
            raise UnauthenticatedError("unknown or revoked token")
        expires_s = self._tokens[key].expires_s
        if expires_s is not None and expires_s <= self._clock():
            raise UnauthenticatedError("token expired: ask an administrator for a new one")
        return _caller(self._tokens[key])

    def by_session(self, session: str) -> Caller:
        """Return the caller of a session."""
        self._refresh()
        row = self._sessions.get(hashed(session))
        if row is None or row.until_s <= self._clock():
            raise UnauthenticatedError("session expired: open a new login link, or log in with a token")
        return _caller(row)

    def invalidate(self) -> None:
        """Drop the cache: tokens or sessions have changed."""
        with self._lock:  # a concurrent read may have missed the change
            self._read_at = -CACHE_S

    def _open_session(self, caller: Caller, token: TokenRow | None, method: str) -> Session:
        secret, now_s = SESSION_PREFIX + secrets.token_urlsafe(32), self._clock()
        until_s = now_s + SESSION_S
        if token is not None and token.expires_s is not None:
            until_s = min(until_s, token.expires_s)
        token_id = None if token is None else token.id
        self._store.add_session(
            SessionRow(hashed(secret), caller.user, caller.role, token_id, until_s), now_s, MAX_SESSIONS
        )
        self.invalidate()
        return Session(secret, caller, until_s, method)

    @property
    def fresh(self) -> bool:
        """Whether the cache is still valid."""
        return time.monotonic() - self._read_at <= CACHE_S

    def _refresh(self) -> None:
        if not self.fresh:
            with self._lock:
                if not self.fresh:
                    self._read()

    def _read(self) -> None:
        """Load the valid tokens and sessions; a session whose token was revoked is invalid."""
        at = time.monotonic()
        all_rows = self._store.tokens()
        rows = [row for row in all_rows if row.revoked_s is None and row.role in ROLES]
        ids = {None, *(row.id for row in rows)}
        sessions = [row for row in self._store.sessions() if row.token in ids and row.role in ROLES]
        self._tokens = {row.hash: row for row in rows}
        self._sessions = {row.hash: row for row in sessions}
        self._read_at = at
        before, self._revoked = self._revoked, {row.id: row.revoked_s is not None for row in all_rows}
        for row in all_rows if before is not None else ():
            if (before or {}).get(row.id) != self._revoked[row.id]:
                for notify in self.on_token:
                    notify(row)


def _caller(row: TokenRow | SessionRow) -> Caller:
    return Caller(row.user, cast("Role", row.role))
