"""Accounts of this system for tests, and a service that runs jobs under them. Only root can make them."""

import itertools
import json
import os
import pwd
import shutil
import site
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

ROOT = Path(__file__).parents[2]
STARTED_S = 120.0
NUMBERS = itertools.count()  # of accounts that this process has made
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # for requests without TLS: certificates take long to load


class Accounts(NamedTuple):
    """Two users, and the account of the service."""

    alice: str
    bob: str
    service: str


@contextmanager
def accounts() -> Iterator[Accounts]:
    """Make accounts that no other tests have, and remove them afterwards, whatever still runs there."""
    number = next(NUMBERS)
    made = Accounts(*(f"crt{os.getpid()}{letter}{number}" for letter in "abs"))
    try:
        for name in made:
            subprocess.run(["useradd", "--create-home", name], check=True, capture_output=True)
            Path(pwd.getpwnam(name).pw_dir).chmod(0o700)
        yield made
    finally:
        for name in made:
            subprocess.run(["userdel", "--force", "--remove", name], check=False, capture_output=True)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Make a folder that other accounts can enter, unlike those that pytest makes."""
    folder = Path(tempfile.mkdtemp(prefix="cranny-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def readable_command(folder: Path, *arguments: str, user: str = "") -> list[str]:
    """Return a command that runs cranny where every account can read it, as root or as a user without any rights.

    Python and the checkout may be in a home of root. So they are mounted elsewhere, for this process alone.
    """
    mounts = {
        Path(sys.base_prefix): folder / "python",
        Path(site.getsitepackages()[0]): folder / "packages",
        ROOT / "src": folder / "src",
    }
    text = ["set -e"]
    for there, here in mounts.items():
        here.mkdir(exist_ok=True)
        text.append(f"mount --bind '{there}' '{here}'")
    without = (
        f"setpriv --reuid={user} --regid={user} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
    )
    text.append(f'exec {without if user else ""} {command_in_jobs(folder)} "$@"')
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(text), "sh", *arguments]


def command_in_jobs(folder: Path) -> str:
    """Return what runs cranny where the mounts of `readable_command` are: also in jobs of that service."""
    python = folder / "python" / "bin" / f"python3.{sys.version_info.minor}"
    paths = f"PYTHONPATH='{folder}/src:{folder}/packages' LD_LIBRARY_PATH='{folder}/python/lib'"
    return f"env {paths} {python} -c 'from cranny.cli import main; main()'"


class Shared(NamedTuple):
    """A service of several users."""

    url: str
    folder: Path
    process: "subprocess.Popen[str]"

    def call(self, token: str, method: str, path: str, body: Any = None) -> Any:
        """Make a request, and return its answer."""
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.request(
            method, f"{self.url}/api/v1/{path}", json=body, headers=headers, timeout=60.0, verify=PLAIN
        )
        assert answer.is_success, answer.text
        return answer.json()


@contextmanager
def shared_service(folder: Path, users: Accounts, *options: str) -> Iterator[Shared]:
    """Start a service as root that runs jobs under the accounts of their users."""
    kept = folder / "service"
    own = ["--folder", str(kept), "--accounts", "same-name", "--run-as", users.service]
    argv = readable_command(
        folder, "serve", "--port", "0", "--json", "--cluster", "1x1x4", "-p", "best-fit", *own, *options
    )
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    with (folder / "errors").open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                break
        assert text, (folder / "errors").read_text(encoding="utf-8")
        yield Shared(json.loads(text)["url"], kept, process)
    finally:
        process.terminate()
        process.wait(STARTED_S)
        if process.stdout is not None:
            process.stdout.close()
