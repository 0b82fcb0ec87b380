"""torchrun through the local backend, with real collectives."""

from importlib.util import find_spec

import pytest
from tests.backends.contract import Harness
from tests.backends.local_harness import LocalHarness, appears

from cranny.backends.protocol import Ended, Launch, Rank

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

TRAIN = """
import os
import torch.distributed as dist
import torch
dist.init_process_group("gloo")
total = torch.tensor([float(os.environ["RANK"])])
dist.all_reduce(total)
names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK CRANNY_MACHINE CRANNY_GPU CUDA_VISIBLE_DEVICES".split()
print(dist.get_world_size(), total.item(), *(os.environ[name] for name in names))
dist.destroy_process_group()
"""


def torchrun(harness: Harness, text: str, *slots: Rank) -> Launch:
    """Launch ranks that run a script."""
    script = harness.folder / "train.py"
    script.write_text(text)
    env = {"OMP_NUM_THREADS": "1"}
    what = Launch("a", 1, ("train.py",), slots, env, harness.folder, harness.folder / "a", None, torchrun=True)
    harness.backend.launch(what)
    return what


def test_an_agent_a_machine_starts_the_ranks(harness: LocalHarness) -> None:
    what = torchrun(harness, TRAIN, Rank(0, 3, 4), Rank(1, 3, 2), Rank(2, 1, 0))
    ended = harness.ends(patience_s=60.0)
    logs = [(what.log_dir / f"rank-{rank}.log").read_text().split() for rank in range(3)]
    assert ended == [Ended("a", 1, 0, "finished")]
    assert logs == [
        ["3", "3.0", "0", "0", "2", "0", "3", "4", "4,2"],
        ["3", "3.0", "1", "1", "2", "0", "3", "2", "4,2"],
        ["3", "3.0", "2", "0", "1", "1", "1", "0", "0"],
    ]
    assert (what.log_dir / "rank-0.log").stat().st_mode & 0o777 == 0o600
    assert harness.left("a") == 0


def test_stopping_takes_agents_and_ranks_along(harness: LocalHarness) -> None:
    what = torchrun(harness, "import time\nprint('up')\ntime.sleep(600)", Rank(0, 0, 0), Rank(1, 0, 1))
    for rank in what.ranks:
        appears(what.log_dir / f"rank-{rank.rank}.log", 60.0)
    assert harness.left("a") >= 3
    harness.backend.stop("a", grace_s=5.0)
    (ended,) = harness.ends(patience_s=60.0)
    assert ended.reason == "cancelled"
    assert harness.left("a") == 0
