"""Redaction of secrets: environment values that only the job itself may read."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "***"
MIN_LENGTH = 4  # shorter secrets are not searched for in logs

_SECRET = re.compile(r"SECRET|TOKEN|PASS|PWD|KEY|CRED|AUTH|PRIVATE|SIGNATURE|COOKIE|SESSION|DSN", re.IGNORECASE)
_LOGIN_IN_URL = re.compile(r"://[^/\s:@]+:[^/\s@]+@")


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks like a secret."""
    return bool(_SECRET.search(name) or _LOGIN_IN_URL.search(value))


def redact_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job spec with its secrets redacted."""
    shown = dict(spec)
    env = spec.get("env") or {}
    if env:
        shown["env"] = {name: REDACTED if is_secret(name, value) else value for name, value in env.items()}
    if spec.get("secrets"):
        shown["secrets"] = dict.fromkeys(spec["secrets"], REDACTED)
    return shown


def secrets_of(spec: Mapping[str, Any]) -> list[bytes]:
    """Return the secret values of a job as bytes, longest first."""
    env: dict[str, str] = spec.get("env") or {}
    values = [value for name, value in env.items() if is_secret(name, value)]
    values += (spec.get("secrets") or {}).values()
    return sorted({value.encode() for value in values if len(value) >= MIN_LENGTH}, key=len, reverse=True)


def redact(text: bytes, secrets: list[bytes]) -> bytes:
    """Replace secrets in log output by asterisks of the same length, so that offsets stay valid."""
    for secret in secrets:
        text = text.replace(secret, b"*" * len(secret))
    return text


def unfinished_secret(text: bytes, secrets: list[bytes]) -> int:
    """Return how many trailing bytes of log output may be the beginning of a secret."""
    longest = max((len(secret) for secret in secrets), default=0)
    for count in range(min(longest - 1, len(text)), 0, -1):
        if any(secret.startswith(text[-count:]) for secret in secrets):
            return count
    return 0
