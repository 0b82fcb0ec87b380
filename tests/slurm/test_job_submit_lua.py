"""The shipped job_submit.lua, as a real slurmctld runs it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.driver import Driver
from tests.slurm.real_slurm import RealSlurm

SHIPPED = Path(__file__).parents[2] / "deploy" / "slurm" / "job_submit.lua"
MORE = "PartitionName=placed Nodes=ALL MaxTime=INFINITE State=UP"


@pytest.fixture(scope="module")
def with_lua(needs_slurm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSlurm]:  # noqa: ARG001 - skips
    """Return a Slurm with the shipped plugin, in which one partition opts in."""
    file = tmp_path_factory.mktemp("lua") / "job_submit.lua"
    text = SHIPPED.read_text()
    assert "local partitions = {} " in text
    file.write_text(text.replace("local partitions = {} ", "local partitions = { placed = true } "))
    with RealSlurm(nodes=2, extra=[MORE], lua=file) as slurm:
        yield slurm


def test_jobs_opt_in_by_comment_feature_or_partition(with_lua: RealSlurm, tmp_path: Path) -> None:
    driver, gpu = Driver(with_lua), ("--gpus=1",)
    ways = [("--comment=cranny model=vgg16",), ("-Ccranny",), ("-Ccranny&row1",), ("-pplaced",)]
    placed = [with_lua.sbatch(*way, *gpu) for way in ways]
    later = with_lua.sbatch("--comment=cranny", "--begin=now+1hour", *gpu)
    others = [("--comment=crannyish",), ("--begin=now+1hour",), ("--hold", "-Crow1")]
    for way in others:
        with_lua.sbatch(*way, *gpu)
    no_gpus = with_lua.sbatch("-pplaced")
    het = with_lua.sbatch("-pplaced", *gpu, ":", "-pplaced", *gpu)  # Slurm's alone
    waiting = driver.source.read().waiting
    assert [each.id for each in waiting] == placed
    assert not driver.source.skipped
    assert all(each.priority > 0 for each in waiting)
    assert waiting[0].spec["model"] == "vgg16"
    assert [each.spec["constraints"].get("features") for each in waiting] == [None, None, ["row1"], None]
    assert "AdminComment=cranny after=" in with_lua.call("scontrol", "show", "job", later)
    with_lua.comes_to(no_gpus, "RUNNING")
    with_lua.comes_to(het, "RUNNING\nRUNNING")
    driver.launch(placed[1], ["node2"])
    with_lua.comes_to(placed[1], "RUNNING")
    itself = replace(
        driver.launch_of("0", ["node1"]), argv=("/bin/true",), log_dir=tmp_path / "1", external="", job_id="job-0"
    )
    driver.backend.launch(itself)
    with_lua.comes_to(driver.backend.external_id("job-0"), "RUNNING", "COMPLETED")
    driver.source.show({placed[0]: "waits for 3 GPUs of node1", placed[1]: "is not overwritten"})
    assert "AdminComment=cranny | waits for 3 GPUs of node1" in with_lua.call("scontrol", "show", "job", placed[0])
    columns = with_lua.call("squeue", "-h", "-j", placed[0], "-O", "reason:12,admin_comment:60")
    assert columns.split("cranny", 1)[1].strip() == "| waits for 3 GPUs of node1"  # as docs/use/slurm.md says
    assert "ranks=node2" in with_lua.call("scontrol", "show", "job", placed[1])
    assert driver.waiting() == [placed[0], *placed[2:]]
