"""Who asks, and what they may do: bearer tokens, kept only as hashes, and sessions of a browser."""

import hashlib
import ipaddress
import secrets
import threading
import time
from typing import Literal, NamedTuple, get_args

from cranny.model.errors import InputError
from cranny.service.limits import RefusedError
from cranny.service.store import Store, TokenRow

Role = Literal["viewer", "user", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
FRESH_S = 2.0  # how long tokens are remembered before the database is asked again
PREFIX = "cranny_"
SESSION_S = 12 * 3600.0
MOST_SESSIONS = 1_000


class UnknownCallerError(RefusedError):
    """No token, or one that does not count."""

    status = 401


class Caller(NamedTuple):
    """Who asks."""

    user: str
    role: Role

    @property
    def rank(self) -> int:
        """How much they may do."""
        return ROLES.index(self.role)


def new_token() -> str:
    """Draw a token of 256 bits."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(token: str) -> str:
    """Return what is kept of a token; it is random and long, so a plain hash cannot be turned back."""
    return hashlib.sha256(token.encode()).hexdigest()


def create(store: Store, user: str, role: str, now_s: float) -> tuple[TokenRow, str]:
    """Make a token for a user; it is shown this once."""
    if role not in ROLES:
        raise InputError(f"role must be viewer, user or admin, not {role!r}")
    if not 1 <= len(user) <= 100 or not user.isprintable():
        raise InputError("user must be printable text of 1 to 100 characters")
    token = new_token()
    row = TokenRow(secrets.token_hex(6), user, role, hashed(token), now_s, None)
    store.add_token(row)
    return row, token


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Keeper:
    """Knows who a token or a session belongs to."""

    def __init__(self, store: Store, *, loopback: bool) -> None:
        self.loopback = loopback
        self._store = store
        self._lock = threading.Lock()
        self._tokens: dict[str, Caller] = {}
        self._read_at = -FRESH_S
        self._own: dict[str, Caller] = {}  # tokens that live as long as this process
        self._codes: dict[str, Caller] = {}  # of one-time links
        self._sessions: dict[str, tuple[Caller, float]] = {}
        self._read()
        if not self._tokens and not loopback:
            raise InputError(
                "nobody could log in: off loopback a token is needed first; make one with `cranny token create`"
            )

    @property
    def has_tokens(self) -> bool:
        """Whether any token is stored."""
        return bool(self._tokens)

    def own_token(self, user: str) -> str:
        """Return an admin's token that is gone with this process."""
        token = new_token()
        self._own[hashed(token)] = Caller(user, "admin")
        return token

    def one_time_code(self, caller: Caller) -> str:
        """Return a code that opens one session."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes[hashed(code)] = caller
        return code

    def redeem(self, code: str) -> str:
        """Turn a one-time code into a session."""
        with self._lock:
            caller = self._codes.pop(hashed(code), None)
        if caller is None:
            raise UnknownCallerError("this link was used before, or is of an earlier start")
        return self.open_session(caller)

    def open_session(self, caller: Caller) -> str:
        """Begin a session of a browser."""
        session = secrets.token_urlsafe(32)
        now_s = time.monotonic()
        with self._lock:
            live = {key: value for key, value in self._sessions.items() if value[1] > now_s}
            while len(live) >= MOST_SESSIONS:
                live.pop(next(iter(live)))
            self._sessions = {**live, hashed(session): (caller, now_s + SESSION_S)}
        return session

    def by_token(self, token: str) -> Caller:
        """Return whose token this is."""
        key = hashed(token)
        if key in self._own:
            return self._own[key]
        if time.monotonic() - self._read_at > FRESH_S:
            self._read()
        caller = self._tokens.get(key)
        if caller is None:
            raise UnknownCallerError("this token is not known, or was revoked")
        return caller

    def by_session(self, session: str) -> Caller:
        """Return whose session this is."""
        caller, until_s = self._sessions.get(hashed(session), (None, 0.0))
        if caller is None or until_s < time.monotonic():
            raise UnknownCallerError("the session is over: open a new link, or log in with a token")
        return caller

    def forget(self) -> None:
        """Ask the database at the next request: tokens have changed."""
        self._read_at = -FRESH_S

    def _read(self) -> None:
        rows = self._store.tokens()
        self._tokens = {
            row.hash: Caller(row.user, row.role) for row in rows if row.revoked_s is None and row.role in ROLES
        }
        self._read_at = time.monotonic()
