"""A short stream of jobs while cranny is killed, a node is lost, one is added, and the controller is restarted.

`python -m tests.slurm.stream` has the long one.
"""

import os

import pytest

from tests.slurm.real_slurm import installed
from tests.slurm.stream import run_stream


@pytest.mark.skipif(not installed() and "CI" not in os.environ, reason="needs root and Slurm")
def test_no_gpu_is_given_twice_and_no_job_is_lost_or_run_twice() -> None:
    result = run_stream(jobs=12, kills=2, seed=0, sleep_s=1.5)
    assert result.violations == []
    assert (result.counts["kill"], result.counts["node"], result.counts["controller"]) == (2, 1, 1)
    assert result.counts["COMPLETED"] >= 9
    assert result.counts["GPUs known"] >= 5  # of jobs that end between two readings they are not
