"""Slurm alone beside cranny, with a few jobs. `python -m tests.slurm.side_by_side` has the stream of 300."""

import os

import pytest

from tests.slurm.real_slurm import installed
from tests.slurm.side_by_side import compare, drawn


@pytest.mark.skipif(not installed() and "CI" not in os.environ, reason="needs root and Slurm")
def test_the_same_stream_through_slurm_alone_and_through_cranny() -> None:
    stream = drawn(jobs=10, nodes=4, load=1.5, seed=0, least_s=0.5, most_s=3.0)
    found = compare(stream, nodes=4)
    shortest_s = sum(job.sleep_s for job in stream) / len(stream)
    for schedule in found.values():
        # Slurm has times in whole seconds, and a busy machine takes its time to start and end a job.
        assert schedule["mean JCT (s)"] >= schedule["mean wait (s)"] + shortest_s - 1.0
        assert schedule["machines per job"] == pytest.approx(sum(job.nodes for job in stream) / len(stream))
        assert 1.0 <= schedule["racks per job"] <= 2.0
        # A busy machine may start no job until the last has come, when the window that is measured ends.
        assert 0.0 <= schedule["machines in use"] <= 4.0
        assert 0.0 <= schedule["fragmentation"] < 1.0
        assert 0.0 <= schedule["largest startable job (GPUs)"] <= 32.0
    assert found["slurm"].keys() == found["cranny"].keys()
