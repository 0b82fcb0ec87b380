"""The halving-doubling of gloo, as we model it, against gloo itself: sender, receiver and size of each message."""

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from tests.reference.collectives import directed

from cranny.model.collective import pattern

SOURCE = Path(__file__).parents[1] / "reference" / "gloo_messages.cpp"
ELEMENTS = 64
Message = tuple[int, float]  # to, share of K


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("g++") is None or not Path("/usr/include/gloo/allreduce_halving_doubling.h").exists():
        pytest.skip("needs g++ and gloo's headers (Debian: g++, libgloo-dev)")
    made = str(tmp_path_factory.mktemp("gloo") / "messages")
    subprocess.run(["g++", "-std=c++14", "-pthread", str(SOURCE), "-lgloo", "-o", made], check=True)
    return made


def sent_by_gloo(program: str, ranks: int) -> dict[int, list[Message]]:
    """What each rank sends, in its order; the program fails if a rank ends with a wrong sum."""
    done = subprocess.run([program, str(ranks), str(ELEMENTS)], check=True, capture_output=True, text=True)
    sent = defaultdict(list)
    for line in done.stdout.splitlines():
        source, to, elements = map(int, line.split())
        sent[source].append((to, elements / ELEMENTS))
    return sent


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 23, 32])
def test_messages_are_those_of_gloo(gloo: str, ranks: int) -> None:
    theirs = sent_by_gloo(gloo, ranks)
    for phase in pattern("gloo-halving-doubling", ranks).phases:
        ours = defaultdict(list)
        for source, to in directed(phase):
            ours[source].append((to, phase.share))
        for source, messages in ours.items():
            now, theirs[source] = theirs[source][: len(messages)], theirs[source][len(messages) :]
            assert sorted(now) == sorted(messages)
    assert not any(theirs.values())
