import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backends.local_harness import LocalHarness

from cranny.backends.local import LocalBackend


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    """Return a harness; nothing of its jobs may be left when the test is over."""
    made = LocalHarness(tmp_path)
    yield made
    assert isinstance(made.backend, LocalBackend)
    until = time.monotonic() + 60.0
    names = list(made.backend._running)
    for job_id in names:
        made.backend.stop(job_id, 0.0)
    while made.backend._running and time.monotonic() < until:
        made.backend.poll()
        time.sleep(0.01)
    made.backend.close()
    assert not any(map(made.left, ["a", *names]))
