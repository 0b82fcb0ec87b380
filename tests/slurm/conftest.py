import os
from collections.abc import Iterator

import pytest

from tests.slurm.real_slurm import RealSlurm, installed


@pytest.fixture(scope="session")
def needs_slurm() -> None:
    """Skip tests where no Slurm can be started; CI must have one."""
    if not installed() and "CI" not in os.environ:
        pytest.skip("needs root, and the packages slurmctld, slurmd, slurm-client and munge")


@pytest.fixture(scope="session")
def slurm_process(needs_slurm: None) -> Iterator[RealSlurm]:  # noqa: ARG001 - skips
    """Return a Slurm with 8 nodes of 8 GPUs each, started once; a test that ends a node starts it again."""
    with RealSlurm() as made:
        yield made


@pytest.fixture
def slurm(slurm_process: RealSlurm) -> Iterator[RealSlurm]:
    """Return that Slurm without jobs, and with all its nodes idle."""
    yield slurm_process
    slurm_process.restore()
