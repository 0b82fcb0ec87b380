"""Sign-in by an OpenID provider: once end to end in a browser, and attacks on each step of it."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from joserfc import jwt
from joserfc.jwk import RSAKey
from tests.cli.conftest import Run
from tests.report.test_page_in_browser import CHROMIUM, browser
from tests.service.accounts import PLAIN
from tests.service.conftest import Serve, until
from tests.service.openid_provider import CLIENT, SECRET, OpenIdProvider, openid_provider
from tests.service.test_dashboard_in_browser import READY
from tests.service.test_rest import problem

from cranny.model.errors import CrannyError, InputError
from cranny.service import oidc_login, oidc_provider
from cranny.service.api import routes_access, routes_oidc
from cranny.service.api.errors import add_handlers
from cranny.service.auth import Authenticator, Caller
from cranny.service.clock import wall_clock
from cranny.service.dashboard import dashboard
from cranny.service.limits import ForbiddenError
from cranny.service.oidc_login import MOST_OF_CLIENT, MOST_PENDING, PENDING_S, OidcLogin, PendingLogins
from cranny.service.oidc_provider import OidcProvider
from cranny.service.oidc_settings import OidcSettings, read_client_secret, read_oidc
from cranny.service.store import EventStore

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]  # the fixture
ROLES: dict[str, list[str]] = {"admin": ["cranny-admins"], "user": ["ml-team", "guests"]}


def settings_of(provider: str, base: str, **more: Any) -> OidcSettings:
    given = {"name": "Example", "issuer": provider, "client_id": CLIENT, "redirect_base": base, "roles": ROLES}
    return OidcSettings.model_validate({**given, "user_claim": "preferred_username", **more})


class RecordedAudit:
    """Remembers what would be recorded."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def record(self, action: str, by: str) -> None:
        self.events.append((action, by))

    def refused(self, _address: str) -> None:
        self.events.append(("refused",))

    def logged_in(self, caller: Caller, _address: str, how: str) -> None:
        self.events.append((caller.user, caller.role, how))


class Entry:
    """The routes by which users get in, and a client of them."""

    def __init__(self, provider: OpenIdProvider, app: FastAPI, url: str) -> None:
        self.provider = provider
        self.app = app
        self.url = url
        self.audit: RecordedAudit = app.state.audit
        self.client = httpx.Client(base_url=url, timeout=60.0, verify=PLAIN)

    def configure(self, **settings: Any) -> OidcLogin:
        made = OidcProvider(settings_of(self.provider.issuer, self.url, **settings), SECRET, wall_clock)
        self.app.state.oidc = OidcLogin(made, self.app.state.authenticator)
        self.audit.events.clear()
        return self.oidc

    @property
    def oidc(self) -> OidcLogin:
        found: OidcLogin = self.app.state.oidc
        return found

    def begin(self) -> tuple[str, str]:
        """Return where a browser is sent back to by the provider, and the verifier of its page."""
        begun = self.client.post("/api/v1/oidc/login").json()
        approved = httpx.get(begun["url"].replace("/authorize?", "/approve?"), verify=PLAIN)
        return approved.headers["location"], begun["verifier"]

    def back(self, url: str) -> str:
        """Follow the way back; return where the page begins."""
        answer = self.client.get(url)
        assert answer.status_code == 303
        assert "cookie" not in str(answer.headers).lower()
        return str(answer.headers["location"])

    def open(self, fragment: str, verifier: str | None) -> httpx.Response:
        """Do what the page does with what it begins with."""
        code = fragment.partition("/#/login?code=")[2]
        assert code, fragment
        return self.client.post("/api/v1/session", json={"code": code, "verifier": verifier})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entry]:
    app = FastAPI()
    store = EventStore(str(tmp_path_factory.mktemp("oidc") / "log.db"))
    store.acquire()
    app.state.authenticator, app.state.audit = Authenticator(store, loopback=True), RecordedAudit()
    app.state.also_at, app.state.oidc = (), None
    add_handlers(app)
    for router in (routes_access.router, routes_oidc.router, dashboard.router):
        app.include_router(router)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    with openid_provider() as provider:
        made = Entry(provider, app, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
        yield made
        made.client.close()
    server.should_exit = True
    thread.join(60)
    store.close()


@pytest.fixture
def entry(whole: Entry) -> Entry:
    whole.provider.reset()
    whole.configure()
    return whole


def test_a_user_signs_in_and_gets_the_role_of_their_groups(entry: Entry) -> None:
    back, verifier = entry.begin()
    session = entry.open(entry.back(back), verifier).json()
    assert (session["user"], session["role"]) == ("alice", "user")
    assert entry.audit.events == [("alice", "user", "oidc")]
    own = {"Authorization": f"Bearer {session['session']}"}
    assert entry.client.delete("/api/v1/session", headers=own).status_code == 204
    entry.provider.user["groups"] = ["guests", "cranny-admins"]
    back, verifier = entry.begin()
    assert entry.open(entry.back(back), verifier).json()["role"] == "admin"  # the highest of both


def test_a_client_without_a_provider_is_told_so_and_sees_no_button(entry: Entry) -> None:
    assert '<meta name="sign-in" content="Example">' in entry.client.get("/").text
    entry.app.state.oidc = None
    assert "--oidc" in problem(entry.client.post("/api/v1/oidc/login"), 404)["detail"]
    assert '<meta name="sign-in" content="">' in entry.client.get("/").text


def unsigned(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none"}, claims)
    return (
        ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."
    )


def test_an_id_token_that_proves_nothing_is_refused(entry: Entry) -> None:
    provider = entry.provider
    public = provider.key.as_pem(private=False)
    stranger = RSAKey.generate_key(2048, {"kid": "first"})
    altered: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "wrong nonce": lambda claims: {**claims, "nonce": "of another sign-in"},
        "no nonce": lambda claims: {name: value for name, value in claims.items() if name != "nonce"},
        "wrong audience": lambda claims: {**claims, "aud": "another-client"},
        "also for another client": lambda claims: {**claims, "aud": [CLIENT, "another"], "azp": "another"},
        "foreign issuer": lambda claims: {**claims, "iss": "https://evil.example"},
        "expired": lambda claims: {**claims, "iat": claims["iat"] - 900, "exp": claims["exp"] - 900},
        "no end": lambda claims: {name: value for name, value in claims.items() if name != "exp"},
        "not yet issued": lambda claims: {**claims, "iat": claims["iat"] + 900},
        "no subject": lambda claims: {name: value for name, value in claims.items() if name != "sub"},
        "another access token": lambda claims: {**claims, "at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
        "a number for an end": lambda claims: {**claims, "exp": "tomorrow"},
    }
    signed: dict[str, Callable[[dict[str, Any]], str]] = {
        "alg none": unsigned,
        "public key as a secret": lambda claims: _with_secret(public, claims),
        "secret of the client": lambda claims: _with_secret(SECRET.encode(), claims),
        "key of a stranger": lambda claims: jwt.encode({"alg": "RS256", "kid": "first"}, claims, stranger),
        "unknown key": lambda claims: jwt.encode({"alg": "RS256", "kid": "other"}, claims, stranger),
        "no token": lambda _: "a.b.c",
    }
    for name, alter in altered.items():
        provider.alter = alter
        assert entry.back(entry.begin()[0]) == "/#/?sign-in=invalid", name
    provider.reset()
    for name, sign in signed.items():
        provider.signed = sign
        assert entry.back(entry.begin()[0]) == "/#/?sign-in=invalid", name
    assert entry.audit.events == [("refused",)] * (len(altered) + len(signed))


def _with_secret(secret: bytes, claims: dict[str, Any]) -> str:
    """Sign as an attacker who hopes that the public key is taken for a shared secret."""
    header = {"alg": "HS256", "kid": "first"}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)]
    mac = hmac.new(secret, ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join((*parts, base64.urlsafe_b64encode(mac).decode().rstrip("=")))


def test_a_callback_works_once_and_only_with_its_own_state(entry: Entry) -> None:
    back, verifier = entry.begin()
    url = httpx.URL(back)
    for wrong in ({**url.params, "state": "made-up"}, {"code": url.params["code"]}, {}):
        assert entry.back(str(url.copy_with(params=wrong))) == "/#/?sign-in=expired"
    fragment = entry.back(back)  # a wrong state did no harm to it
    assert entry.back(back) == "/#/?sign-in=expired"
    assert entry.open(fragment, verifier).status_code == 201
    assert entry.open(fragment, verifier).status_code == 401
    other = httpx.URL(entry.begin()[0])
    assert (
        entry.back(str(other.copy_set_param("code", url.params["code"]))) == "/#/?sign-in=invalid"
    )  # used already


def test_an_answer_of_another_issuer_is_refused_before_its_code_is_sent_anywhere(entry: Entry) -> None:
    url = httpx.URL(entry.begin()[0])
    assert entry.back(str(url.copy_set_param("iss", "https://evil.example"))) == "/#/?sign-in=invalid"
    entry.configure()
    entry.provider.metadata = {"authorization_response_iss_parameter_supported": True}
    url = httpx.URL(entry.begin()[0])
    assert entry.back(str(url.copy_remove_param("iss"))) == "/#/?sign-in=invalid"
    assert "/token" not in entry.provider.asked
    url = httpx.URL(entry.begin()[0])
    refused = {"error": "access_denied", "state": url.params["state"], "iss": entry.provider.issuer}
    assert entry.back(str(url.copy_with(params=refused))) == "/#/?sign-in=invalid"


def test_a_code_is_worth_nothing_in_another_browser(entry: Entry) -> None:
    back, verifier = entry.begin()
    fragment = entry.back(back)  # an attacker makes the browser of a victim follow it, or has stolen the link
    detail = problem(entry.open(fragment, None), 401)["detail"]
    assert "another tab or browser" in detail
    assert entry.open(fragment, verifier).status_code == 401  # it was used up
    back, _ = entry.begin()
    _, other = entry.begin()
    assert entry.open(entry.back(back), other).status_code == 401
    assert entry.audit.events == [("refused",)] * 3


def test_a_code_is_valid_for_a_minute(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc_login, "CODE_S", 0.0)
    back, verifier = entry.begin()
    assert entry.open(entry.back(back), verifier).status_code == 401


def test_users_without_a_place_in_the_file_are_refused(entry: Entry, caplog: pytest.LogCaptureFixture) -> None:
    entry.provider.user["groups"] = ["cleaners"]
    assert entry.back(entry.begin()[0]) == "/#/?sign-in=refused"
    assert "is in none of the groups" in caplog.text
    assert entry.audit.events == [("refused",)]


def test_claims_become_users_and_roles(entry: Entry) -> None:
    def caller(claims: dict[str, Any], **settings: Any) -> Caller | str:
        try:
            return settings_of(entry.provider.issuer, entry.url, **settings).caller(claims)
        except ForbiddenError as error:
            return str(error)

    member = {"preferred_username": "alice", "groups": ["ml-team"]}
    assert caller(member) == Caller("alice", "user")
    assert caller({**member, "groups": "ml-team"}) == Caller("alice", "user")
    assert "none of the groups" in caller({**member, "groups": None})
    assert caller({**member, "groups": [["ml-team"]]}, default_role="viewer") == Caller("alice", "viewer")
    assert caller(member, users={"alice": "al"}) == Caller("al", "user")
    assert "not listed" in caller(member, users={"bob": "bob"})
    assert "no claim" in caller({"groups": ["ml-team"]})
    assert "no claim" in caller({**member, "preferred_username": ["alice"]})
    assert "no name" in caller({**member, "preferred_username": "al\nice"})
    assert "no name" in caller({**member, "preferred_username": ""})
    nested = {"preferred_username": "alice", "realm_access": {"roles": ["cranny-admins"]}}
    assert caller(nested, groups_claim="realm_access.roles") == Caller("alice", "admin")
    mail = {"email": "alice@example.org", "groups": ["ml-team"]}
    assert "not verified" in caller(mail, user_claim="email")
    assert "not verified" in caller({**mail, "email_verified": "true"}, user_claim="email")
    assert caller({**mail, "email_verified": True}, user_claim="email") == Caller("alice@example.org", "user")


def test_new_keys_of_the_provider_are_read_when_they_are_used(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, verifier = entry.begin()
    assert entry.open(entry.back(back), verifier).status_code == 201
    new = RSAKey.generate_key(2048, {"kid": "second"})
    entry.provider.published.append(new.as_dict(private=False))
    entry.provider.signed = lambda claims: jwt.encode({"alg": "RS256", "kid": "second"}, claims, new)
    assert entry.back(entry.begin()[0]) == "/#/?sign-in=invalid"  # keys were read just now
    monkeypatch.setattr(oidc_provider, "KEYS_AGAIN_S", 0.0)
    back, verifier = entry.begin()
    assert entry.open(entry.back(back), verifier).status_code == 201
    assert entry.provider.asked.count("/jwks") == 2


def test_a_provider_that_is_slow_or_gone_leaves_the_rest_as_it_is(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_provider, "ANSWER_S", 0.5)
    back, _ = entry.begin()
    entry.provider.delay.clear()
    assert entry.back(back) == "/#/?sign-in=unreachable"
    entry.configure()
    answers: list[httpx.Response] = []

    def log_in() -> None:
        answers.append(httpx.post(f"{entry.url}/api/v1/oidc/login", timeout=60.0, verify=PLAIN))

    threads = [threading.Thread(target=log_in) for _ in range(60)]  # more than there are threads for requests
    for thread in threads:
        thread.start()
    assert entry.client.get("/healthz").status_code == 200
    for thread in threads:
        thread.join(60)
    assert {problem(answer, 502)["detail"] for answer in answers} == {
        "Example cannot be reached; try again, or use a token"
    }
    assert len(entry.oidc.pending) == 0
    entry.provider.delay.set()
    entry.configure(issuer="http://127.0.0.1:9")  # the port discards, or nothing is there
    problem(entry.client.post("/api/v1/oidc/login"), 502)
    entry.configure()
    for lie in ({"issuer": "https://evil.example"}, {"token_endpoint": "http://evil.example/token"}):
        entry.provider.metadata = lie
        problem(entry.client.post("/api/v1/oidc/login"), 502)


def test_sign_ins_under_way_are_bounded_in_number_and_time() -> None:
    now_s = 0.0
    pending = PendingLogins(lambda: now_s)
    pending.add("patient", "10.0.0.1")
    for number in range(5 * MOST_OF_CLIENT):  # of one client: only their own make room
        pending.add(f"flood-{number}", "10.0.0.2")
    assert len(pending) == 1 + MOST_OF_CLIENT
    assert pending.take("flood-0") is None
    for number in range(2 * MOST_PENDING):  # of many clients
        pending.add(f"many-{number}", f"10.1.{number // 250}.{number % 250 // 25}")
    assert len(pending) == MOST_PENDING
    assert pending.take("patient") is not None
    assert pending.take("patient") is None
    now_s += PENDING_S
    assert pending.take(f"many-{2 * MOST_PENDING - 1}") is None
    pending.add("next", "10.0.0.1")
    assert len(pending) == 1


GOOD = """
name: Example
issuer: https://login.example.org/realms/team
client_id: cranny
client_secret_file: secret
redirect_base: https://cranny.example.org/
user_claim: email
users: {alice@example.org: alice}
roles:
  admin: [cranny-admins]
default_role: viewer
"""


def test_a_file_of_settings_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, secret = tmp_path / "oidc.yaml", tmp_path / "secret"
    file.write_text(GOOD)
    found = read_oidc(file)
    assert found.redirect_uri == "https://cranny.example.org/oidc/callback"
    assert found.scopes == ["openid", "profile", "email"]
    with pytest.raises(InputError, match="No such file"):
        read_client_secret(found, tmp_path)
    secret.write_text("hunter2\n")
    secret.chmod(0o644)
    with pytest.raises(InputError, match="all users of this machine can read it"):
        read_client_secret(found, tmp_path)
    secret.chmod(0o600)
    assert read_client_secret(found, tmp_path) == "hunter2"
    file.write_text(GOOD.replace("client_secret_file: secret", "client_secret_env: OIDC_SECRET\nscopes: [groups]"))
    found = read_oidc(file)
    assert found.scopes == ["openid", "groups"]
    with pytest.raises(InputError, match="OIDC_SECRET is not set"):
        read_client_secret(found, tmp_path)
    monkeypatch.setenv("OIDC_SECRET", "hunter3")
    assert read_client_secret(found, tmp_path) == "hunter3"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("issuer: https://login", "issuer: http://login", "oidc.yaml:3: issuer: must be a URL with https"),
        ("org/realms", "org/?x", "issuer: must be a URL"),
        (".org/\n", ".org/cranny\n", "oidc.yaml:6: redirect_base: must be a URL with https"),
        ("user_claim: email\n", "", "user_claim: is missing"),
        ("client_secret_file: secret", "client_secret: hunter2", "unknown field 'client_secret'"),
        ("default_role: viewer", "default_role: owner", "must be viewer, user or admin"),
        ("admin: [cranny-admins]", "owner: [cranny-admins]", "must be viewer, user or admin"),
        ("roles:\n  admin: [cranny-admins]\ndefault_role: viewer\n", "", "no user would get in"),
        ("client_id", "client_secret_env: X\nclient_id", "give one of them"),
    ],
)
def test_a_bad_file_gets_one_line(tmp_path: Path, before: str, after: str, says: str) -> None:
    file = tmp_path / "oidc.yaml"
    assert before in GOOD
    file.write_text(GOOD.replace(before, after))
    with pytest.raises(CrannyError) as caught:
        read_oidc(file)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_extra_gets_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    there = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "authlib" else there(name))
    told = run("serve", "--oidc", "oidc.yaml", "--recommend-only", "--folder", tmp_path / "f")
    assert told.code == 1
    assert told.err == "cranny: --oidc needs 'authlib': pip install 'cranny[oidc]'\n"


@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium in /usr/bin/chromium")
def test_a_browser_signs_in(serve: Serve, whole: Entry, browser: "Browser") -> None:
    provider = whole.provider
    provider.reset()

    def sign_in(url: str, authenticator: Authenticator) -> OidcLogin:
        return OidcLogin(OidcProvider(settings_of(provider.issuer, url), SECRET, wall_clock), authenticator)

    site = serve(oidc=sign_in)
    context, other = browser.new_context(), browser.new_context()
    page, victim = context.new_page(), other.new_page()
    page.goto(site.url)
    page.get_by_role("button", name="Sign in with Example").click()
    page.wait_for_url(f"{provider.issuer}/authorize*")
    with page.expect_request(f"{site.url}/oidc/callback*") as back:
        page.get_by_role("link", name="go").click()
    page.wait_for_selector(READY)
    page.locator("#who").filter(has_text="alice, user").wait_for()
    assert page.url == f"{site.url}/#/"
    assert context.cookies() == []
    assert page.evaluate("() => sessionStorage.length") == 0
    victim.goto(back.value.url)  # what was used once
    victim.get_by_text("This sign-in has expired").wait_for()
    begun = httpx.post(f"{site.url}/api/v1/oidc/login").json()  # of an attacker, who lets the victim finish it
    victim.goto(httpx.get(begun["url"].replace("/authorize?", "/approve?")).headers["location"])
    victim.get_by_text("begun in another browser").wait_for()
    assert victim.evaluate("() => localStorage.length") == 0
    provider.user["groups"] = []
    victim.get_by_role("button", name="Sign in with Example").click()
    victim.get_by_role("link", name="go").click()
    victim.get_by_text("have no access to this service").wait_for()
    with site.client() as root:
        found = root.get("/api/v1/audit").json()["events"]
    logins = [event for event in found if event.get("action") == "logged-in"]
    assert [(event["by"], event["role"], event["method"]) for event in logins] == [("alice", "user", "oidc")]
    context.close()
    other.close()
