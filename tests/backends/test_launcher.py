"""What the launcher is asked, and what it answers."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cranny.backends.launcher import Launcher, send
from cranny.model.errors import CrannyError

MANY = 20_000  # accounts, whose names take more than a packet of a socket has


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    if os.geteuid() != 0:
        pytest.skip("only root can start jobs of other users")
    made = Launcher({f"user-{number}@example.org": f"account{number}" for number in range(MANY)}, None)
    yield made
    made.close()


def test_it_knows_many_accounts_and_outlives_requests_that_make_no_sense(
    launcher: Launcher, tmp_path: Path
) -> None:
    for attempt in (float("inf"), "one", None, [1]):
        with pytest.raises(CrannyError):
            launcher.start(f"user-{MANY - 1}@example.org", tmp_path, attempt)  # type: ignore[arg-type]
    with pytest.raises(CrannyError, match=f"account{MANY - 1}"):  # which this system does not have
        launcher.start(f"user-{MANY - 1}@example.org", tmp_path, 1)
    with pytest.raises(CrannyError, match="has no account"):
        launcher.start("stranger", tmp_path, 1)


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next() -> None:
    asking = Launcher.__new__(Launcher)
    asking._socket, other = socket.socketpair()
    with asking._socket, other:
        asking._asked = 1  # of which the answer was not waited for
        send(other, {"done": 4711, "to": 1})
        send(other, {"done": 4712, "to": 2})
        assert asking.start("alice", Path("logs"), 1) == 4712
