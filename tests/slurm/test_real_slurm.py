"""The Slurm that tests start."""

from tests.slurm.real_slurm import RealSlurm, until

STEP = """#!/bin/sh
srun -l sh -c 'echo $SLURMD_NODENAME $SLURM_LOCALID' > {out}
sleep 600
"""


def test_a_job_runs_on_the_nodes_it_asks_for(slurm: RealSlurm) -> None:
    out = slurm.folder / "ranks"
    slurm.sbatch("-wnode[6-7]", "-n4", "--ntasks-per-node=2", "--gpus-per-node=2", script=STEP.format(out=out))
    until(lambda: out.exists() and len(out.read_text().splitlines()) == 4, "four ranks")
    assert sorted(out.read_text().splitlines()) == ["0: node6 0", "1: node6 1", "2: node7 0", "3: node7 1"]
