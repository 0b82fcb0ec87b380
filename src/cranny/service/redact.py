"""Keeping secrets out of sight: values of the environment that nobody but the job may read."""

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
LEAST = 4  # characters from which a secret is looked for in what a job writes

_SECRET = re.compile(r"SECRET|TOKEN|PASS|PWD|KEY|CRED|AUTH|PRIVATE|SIGNATURE|COOKIE|SESSION|DSN", re.IGNORECASE)
_LOGIN_IN_URL = re.compile(r"://[^/\s:@]+:[^/\s@]+@")


def is_secret(name: str, value: str) -> bool:
    """Say whether a variable looks like one that holds a secret."""
    return bool(_SECRET.search(name) or _LOGIN_IN_URL.search(value))


def masked(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's fields with its secrets hidden."""
    shown = dict(spec)
    env = spec.get("env") or {}
    if env:
        shown["env"] = {name: HIDDEN if is_secret(name, value) else value for name, value in env.items()}
    if spec.get("secrets"):
        shown["secrets"] = dict.fromkeys(spec["secrets"], HIDDEN)
    return shown


def secrets_of(spec: Mapping[str, Any]) -> list[bytes]:
    """Return the secret values of a job, longest first, as they would stand in its logs."""
    env: dict[str, str] = spec.get("env") or {}
    values = [value for name, value in env.items() if is_secret(name, value)]
    values += (spec.get("secrets") or {}).values()
    return sorted({value.encode() for value in values if len(value) >= LEAST}, key=len, reverse=True)


def hide(text: bytes, secrets: list[bytes]) -> bytes:
    """Cover secrets in what a job wrote; the length stays, so that offsets do."""
    for secret in secrets:
        text = text.replace(secret, b"*" * len(secret))
    return text


def begun(text: bytes, secrets: list[bytes]) -> int:
    """Return how many bytes at the end of what a job wrote may be the beginning of a secret."""
    longest = max((len(secret) for secret in secrets), default=0)
    for count in range(min(longest - 1, len(text)), 0, -1):
        if any(secret.startswith(text[-count:]) for secret in secrets):
            return count
    return 0
