"""The Slurm that tests start: it runs jobs, and loses and regains nodes and its controller."""

from tests.slurm.real_slurm import RealSlurm, until

STEP = """#!/bin/sh
srun -l sh -c 'echo $SLURMD_NODENAME $SLURM_LOCALID' > {out}
sleep 600
"""


def test_a_job_runs_on_the_nodes_it_asks_for_and_outlives_the_controller(slurm: RealSlurm) -> None:
    out = slurm.folder / "ranks"
    job = slurm.sbatch(
        "-wnode[6-7]", "-n4", "--ntasks-per-node=2", "--gpus-per-node=2", script=STEP.format(out=out)
    )
    until(lambda: out.exists() and len(out.read_text().splitlines()) == 4, "four ranks")
    assert sorted(out.read_text().splitlines()) == ["0: node6 0", "1: node6 1", "2: node7 0", "3: node7 1"]
    slurm.stop_controller()
    slurm.start_controller()
    until(lambda: slurm.state(job) == "RUNNING", "the controller")


def test_a_node_that_loses_power_takes_its_jobs_with_it(slurm: RealSlurm) -> None:
    job = slurm.sbatch("-wnode8", "--gpus-per-node=1", "--no-requeue")
    slurm.comes_to(job, "RUNNING")
    slurm.kill_node("node8")
    slurm.call("scontrol", "update", "NodeName=node8", "State=DOWN", "Reason=power")
    assert slurm.comes_to(job, "NODE_FAIL", "FAILED") == "NODE_FAIL"
    slurm.restore()
