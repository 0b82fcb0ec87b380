"""Who asks, and what they may do: bearer tokens and sessions of browsers, both kept only as hashes."""

import hashlib
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable
from typing import Literal, NamedTuple, cast, get_args

from cranny.model.errors import InputError
from cranny.service.clock import wall_clock
from cranny.service.limits import RefusedError
from cranny.service.store import SessionRow, Store, TokenRow

Role = Literal["viewer", "user", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
FRESH_S = 2.0  # how long tokens and sessions are remembered before the database is asked again
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

    def __init__(self, store: Store, *, loopback: bool, clock: Callable[[], float] = wall_clock) -> None:
        self.loopback = loopback
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[str, TokenRow] = {}
        self._sessions: dict[str, SessionRow] = {}
        self._read_at = -FRESH_S
        self._own: dict[str, Caller] = {}  # tokens that live as long as this process
        self._codes: dict[str, Caller] = {}  # of one-time links
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
        return self._open_session(caller, None)

    def log_in(self, token: str) -> str:
        """Begin a session of a browser with a token; it ends with the token at the latest."""
        caller, row = self.by_token(token), self._tokens.get(hashed(token))
        return self._open_session(caller, row.id if row is not None else None)

    def log_out(self, session: str) -> None:
        """End a session."""
        self._store.end_session(hashed(session))
        self.forget()

    def by_token(self, token: str) -> Caller:
        """Return whose token this is."""
        key = hashed(token)
        if key in self._own:
            return self._own[key]
        self._refresh()
        row = self._tokens.get(key)
        if row is None:
            raise UnknownCallerError("this token is not known, or was revoked")
        return _caller(row)

    def by_session(self, session: str) -> Caller:
        """Return whose session this is."""
        self._refresh()
        row = self._sessions.get(hashed(session))
        if row is None or row.until_s <= self._clock():
            raise UnknownCallerError("the session is over: open a new link, or log in with a token")
        return _caller(row)

    def forget(self) -> None:
        """Ask the database at the next request: tokens or sessions have changed."""
        with self._lock:  # one who reads at this moment may not have seen the change
            self._read_at = -FRESH_S

    def _open_session(self, caller: Caller, token_id: str | None) -> str:
        session, now_s = secrets.token_urlsafe(32), self._clock()
        row = SessionRow(hashed(session), caller.user, caller.role, token_id, now_s + SESSION_S)
        self._store.add_session(row, now_s, MOST_SESSIONS)
        self.forget()
        return session

    @property
    def fresh(self) -> bool:
        """Whether the next question needs no database."""
        return time.monotonic() - self._read_at <= FRESH_S

    def _refresh(self) -> None:
        if not self.fresh:
            with self._lock:
                if not self.fresh:
                    self._read()

    def _read(self) -> None:
        """Learn which tokens and sessions count; one whose token was revoked does not, whoever revoked it."""
        at = time.monotonic()
        rows = [row for row in self._store.tokens() if row.revoked_s is None and row.role in ROLES]
        ids = {None, *(row.id for row in rows)}
        sessions = [row for row in self._store.sessions() if row.token in ids and row.role in ROLES]
        self._tokens = {row.hash: row for row in rows}
        self._sessions = {row.hash: row for row in sessions}
        self._read_at = at


def _caller(row: TokenRow | SessionRow) -> Caller:
    return Caller(row.user, cast("Role", row.role))
