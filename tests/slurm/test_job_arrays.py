"""Job arrays are placed task by task; marked jobs that cranny cannot place are left to Slurm."""

import pytest

from cranny.agent.slurm_launch import job_name
from cranny.backends.slurm.job_arrays import task_numbers
from tests.slurm.driver import FAR, Driver
from tests.slurm.real_slurm import RealSlurm, until

LEFT = "Slurm places this job, since it"


@pytest.mark.parametrize(
    ("written", "tasks"),
    [
        ("1,3-5", [1, 3, 4, 5]),
        ("0-9:4%2", [0, 4, 8]),
        ("7", [7]),
        ("1-2,...", [1, 2]),
        ("", []),
    ],
)
def test_tasks_that_an_array_still_stands_for(written: str, tasks: list[int]) -> None:
    assert list(task_numbers(written)) == tasks


def test_the_launcher_asks_for_its_own_task() -> None:
    assert job_name({"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}) == "12_0"
    assert job_name({"SLURM_JOB_ID": "13", "SLURM_HET_JOB_ID": "12"}) == "12"


@pytest.mark.parametrize("gate", [("--hold",), (FAR,)])
def test_tasks_of_an_array_are_placed_one_by_one(slurm: RealSlurm, gate: tuple[str, ...]) -> None:
    driver = Driver(slurm)
    array = slurm.sbatch(*gate, "--comment=cranny tp=2", "--array=0-2%2", "--gpus-per-node=2")
    first, second, third = (f"{array}_{task}" for task in range(3))
    driver.source.read()  # splits tasks off
    assert driver.waiting() == [first, second]  # not more than its user lets run at a time
    for task, node in ((first, "node3"), (second, "node5")):
        driver.launch(task, [node, node])
        slurm.comes_to(task, "RUNNING")
    reading = driver.source.read()
    assert not reading.waiting
    assert not reading.foreign
    driver.backend.stop(f"job-{first}")
    assert [each.reason for each in driver.ends()] == ["cancelled"]
    assert driver.waiting() == [third]
    driver.launch(third, ["node6", "node6"])  # which has the id of the array
    slurm.comes_to(third, "RUNNING")
    assert slurm.call("squeue", "-h", "-j", third, "-o", "%N %A").split() == ["node6", array]
    driver.backend.stop(f"job-{third}")
    assert [each.job_id for each in driver.ends()] == [f"job-{third}"]
    assert slurm.state(second) == "RUNNING"
    assert list(driver.restarted().backend.adopt([driver.launch_of(second, ["node5", "node5"])])) == []


def test_marked_jobs_that_cannot_be_placed_are_left_to_slurm(slurm: RealSlurm) -> None:
    driver, held = Driver(slurm), ("--hold", "--comment=cranny")
    jobs = {
        slurm.sbatch(*held): "asks for no GPUs",
        slurm.sbatch(*held, "--gpus=3", "-N2"): "asks for 3 GPUs on 2 nodes",
        slurm.sbatch(FAR, "--comment=cranny", "-C(row1|row2)&row1", "--gpus=1"): "has the constraint",
        slurm.sbatch(*held, "--gpus=1", ":", "--gpus=1"): "is heterogeneous",
        slurm.sbatch(*held, "--array=1-2"): "asks for no GPUs",
    }
    theirs = slurm.sbatch("--hold")  # another reason to hold it
    driver.source.read()
    until(lambda: all(set(slurm.state(job).split()) == {"RUNNING"} for job in jobs), "all to run")
    for job, why in jobs.items():
        assert f"{LEFT} {why}" in slurm.call("scontrol", "show", "job", job)
    reading = driver.source.read()
    assert not reading.waiting
    assert slurm.state(theirs) == "PENDING"
