"""A short stream of jobs while cranny is killed.

`python -m tests.slurm.stream` has the long one, in which nodes and the controller are lost as well: jobs that were
placed on a node just before it went are placed again and again until Slurm says so, which may take minutes.
"""

import os

import pytest

from tests.slurm.real_slurm import installed
from tests.slurm.stream import run_stream


@pytest.mark.skipif(not installed() and "CI" not in os.environ, reason="needs root and Slurm")
def test_no_gpu_is_given_twice_and_no_job_is_lost_or_run_twice() -> None:
    result = run_stream(jobs=16, kills=2, seed=0, sleep_s=1.5, nodes_change=False)
    assert result.violations == []
    assert result.counts["kill"] == 2
    assert result.counts["COMPLETED"] >= 14
