"""The file of `cranny serve --oidc`: an OpenID provider, and which of its users get in, by which name and role."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from cranny.model.errors import InputError
from cranny.model.yaml_file import Document, Fields, Name, checked
from cranny.service.auth import ROLES, Caller, Role, is_loopback
from cranny.service.limits import ForbiddenError

CALLBACK = "/oidc/callback"
MAX_SECRET = 4096
TEXT = frozenset(
    (
        *("name", "issuer", "client_id", "client_secret_file", "client_secret_env", "redirect_base"),
        *("user_claim", "groups_claim", "default_role"),
    )
)


def secure(url: str) -> str:
    """Return a URL by which secrets may be sent: https, or http that does not leave this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ValueError
    if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment or not url.isprintable():
        raise ValueError
    return url


def _origin(url: str) -> str:
    if urlsplit(secure(url)).path.strip("/"):
        raise ValueError
    return url.rstrip("/")


def _with_openid(scopes: list[str]) -> list[str]:
    return scopes if "openid" in scopes else ["openid", *scopes]


class OidcSettings(Fields):
    """An OpenID provider, and what its users may do."""

    name: Name  # on the button of the login page
    issuer: Annotated[str, AfterValidator(secure)]
    client_id: Name
    client_secret_file: Name | None = None
    client_secret_env: Name | None = None
    redirect_base: Annotated[str, AfterValidator(_origin)]
    scopes: Annotated[list[Name], AfterValidator(_with_openid)] = Field(default=["openid", "profile", "email"])
    user_claim: Name
    users: dict[Name, Name] | None = None  # by the value of the claim; None if that is the name of the user
    groups_claim: Name = "groups"
    roles: dict[Role, list[Name]] = Field(default_factory=dict)  # groups whose members have the role
    default_role: Role | None = None  # of users in none of these groups; None to refuse them

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends browsers back to."""
        return self.redirect_base + CALLBACK

    def caller(self, claims: Mapping[str, Any]) -> Caller:
        """Return the user and role of a verified id token, or refuse it."""
        name = claims.get(self.user_claim)
        if not isinstance(name, str):
            raise ForbiddenError(f"the id token has no claim {self.user_claim!r}")
        if self.user_claim == "email" and claims.get("email_verified") is not True:
            raise ForbiddenError(f"the provider has not verified the address {name!r}")  # anyone can claim it
        user = name if self.users is None else self.users.get(name)
        if user is None:
            raise ForbiddenError(f"{name!r} is not listed under users")
        if not 1 <= len(user) <= 100 or not user.isprintable():
            raise ForbiddenError(f"{name[:100]!r} is no name of a user")
        groups = _groups(claims, self.groups_claim)
        given = [role for role in ROLES if groups.intersection(self.roles.get(role, ()))]
        role = given[-1] if given else self.default_role  # the highest
        if role is None:
            raise ForbiddenError(f"{name!r} is in none of the groups that have a role")
        return Caller(user, role)


def _groups(claims: Mapping[str, Any], claim: str) -> set[str]:
    """Return the groups in a claim, which may be nested: `realm_access.roles`."""
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        found = [found]
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def read_oidc(path: Path) -> OidcSettings:
    """Read the file; a bad one gets one line with file, line and field."""
    document = Document(path, TEXT, text_below=frozenset({"users", "roles", "scopes"}))
    url = "a URL with https (http only on this machine)"
    words: dict[str, str] = {
        **dict.fromkeys(TEXT, "text of 1 to 100 characters"),
        "issuer": f"{url} and without a query",
        "redirect_base": f"{url} and without a path, such as https://gpus.example.org",
        "scopes": "a list of names",
        "users": "a mapping of what the claim says to names of users",
        "roles": "a mapping of viewer, user or admin to lists of groups",
        "default_role": "viewer, user or admin",
        "[key]": "viewer, user or admin",
        **dict.fromkeys(("scopes[]", "viewer[]", "user[]", "admin[]"), "a name"),
        **dict.fromkeys(ROLES, "a list of groups"),
    }
    settings = checked(document, OidcSettings, {}, words)
    if not settings.roles and settings.default_role is None:
        raise document.error((), "no user would get in: give roles, default_role or both")
    if settings.client_secret_file is not None and settings.client_secret_env is not None:
        raise document.error(("client_secret_env",), "is given besides client_secret_file; give one of them")
    return settings


def read_client_secret(settings: OidcSettings, folder: Path) -> str | None:
    """Read the secret of the client from where the file in a folder says; None if the client has none."""
    if settings.client_secret_env is not None:
        secret = os.environ.get(settings.client_secret_env, "")
        if not secret:
            raise InputError(f"client_secret_env: {settings.client_secret_env} is not set")
        return secret
    if settings.client_secret_file is None:
        return None
    path = folder / settings.client_secret_file
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(MAX_SECRET)
    except OSError as error:
        raise InputError(f"client_secret_file: {path}: {error.strerror}") from None
    if mode & stat.S_IROTH:
        raise InputError(f"client_secret_file: {path}: all users of this machine can read it; chmod it to 0600")
    secret = content.decode("utf-8", errors="replace").strip()
    if not secret:
        raise InputError(f"client_secret_file: {path}: is empty")
    return secret
