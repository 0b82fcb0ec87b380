"""Checks of the TLS certificate and key of `cranny serve`, before anything is started."""

import ssl
from pathlib import Path
from typing import NoReturn

from cranny.model.errors import InputError


def check_pair(certificate: Path, key: Path) -> None:
    """Refuse an unusable certificate or private key, with one line that names the file and the reason."""
    for option, path, kind in (
        ("--tls-certificate", certificate, "CERTIFICATE"),
        ("--tls-key", key, "PRIVATE KEY"),
    ):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{option}: {path}: {error.strerror}") from None
        if f"{kind}-----".encode() not in content:
            raise InputError(f"{option}: {path}: contains no {kind.lower()} in PEM format")

    def locked() -> NoReturn:
        raise InputError(f"--tls-key: {key}: is encrypted with a password; give an unencrypted key")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, locked)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(f"--tls-key: {key}: does not match {certificate}") from None
        raise InputError(f"{_culprit(certificate, key)}: is damaged") from None


def _culprit(certificate: Path, key: Path) -> str:
    """Name the damaged file: the key, if the certificate alone can be read."""
    try:
        ssl.create_default_context(cafile=str(certificate))
    except (ssl.SSLError, ValueError):
        return f"--tls-certificate: {certificate}"
    return f"--tls-key: {key}"
