"""What supervisors hand to the accounts of ranks: nothing that users could share, and no file but their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cranny.backends.log_writer import give_pipe
from cranny.backends.privileges import Account

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other accounts")

# Run as a process of its own, since it leaves the account and the session keyring of this one.
KEYRINGS = """
import ctypes, os
from cranny.backends import session_keyring
from cranny.backends.privileges import Account, give_up, keep_for_launching

ADD, SESSION = {250: 248, 219: 217, 271: 269, 280: 278}, ctypes.c_long(-3)
KEYCTL = session_keyring._CALLS.get(os.uname().machine, 219)
call = ctypes.CDLL(None).syscall

def add(name):
    return call(ADD[KEYCTL], b"user", name, b"secret", 6, SESSION) > 0

def found(name):
    return call(KEYCTL, 10, SESSION, b"user", name, 0) > 0

def as_rank(uid, leaves, names):
    if os.fork() == 0:
        give_up(Account("", uid, uid, (uid,), "", ""))
        print("finds", [name for name in names if found(name)], "adds", add(leaves), flush=True)
        os._exit(0)
    os.wait()

session_keyring.join_new_keyring()
print("root adds", add(b"of root"), flush=True)
keep_for_launching(Account("", 64001, 64001, (64001,), "", ""))
print("the launcher finds", found(b"of root"), flush=True)
as_rank(64002, b"of alice", [b"of root"])
as_rank(64003, b"of bob", [b"of root", b"of alice"])
"""


def test_keys_of_root_and_of_other_users_are_not_in_the_session_keyring_of_a_rank() -> None:
    ran = subprocess.run([sys.executable, "-c", KEYRINGS], capture_output=True, text=True, check=True)
    works = ran.stdout.startswith("root adds True")  # not in a container that forbids keyrings
    rank = f"finds [] adds {works}"
    assert ran.stdout.splitlines()[1:] == ["the launcher finds False", rank, rank]


@pytest.mark.parametrize("kind", ["link", "second name", "pipe of another account"])
def test_a_service_cannot_let_a_supervisor_give_away_files_of_root(kind: str, tmp_path: Path) -> None:
    of_root, pipe = tmp_path / "passwd", tmp_path / "rank-0.pipe"
    of_root.touch()
    if kind == "link":
        pipe.symlink_to(of_root)
    elif kind == "second name":
        pipe.hardlink_to(of_root)
    else:
        os.mkfifo(pipe)
        os.chown(pipe, 64001, -1)
        of_root = pipe
    owner = of_root.stat().st_uid
    with pytest.raises(OSError, match=r"replaced|symbolic links"):
        give_pipe(pipe, Account("", 64002, 64002, (64002,), "", ""))
    assert of_root.stat().st_uid == owner
