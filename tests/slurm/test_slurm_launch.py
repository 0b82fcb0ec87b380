"""Ranks as they are seen from inside the tasks of a real Slurm job."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import cranny
from cranny.agent.slurm_launch import TaskOfStep, tasks_per_node, variables
from cranny.channel.placed_comment import PlacedComment
from tests.slurm.driver import WRAPPER, Driver
from tests.slurm.real_slurm import RealSlurm, until

LAUNCH = shlex.join(WRAPPER)
SAID = "$RANK of $WORLD_SIZE $SLURMD_NODENAME $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"
SAYS = f"sh -c 'echo {SAID}'"


@pytest.fixture
def four_machines(needs_slurm: None) -> Iterator[Driver]:  # noqa: ARG001 - skips
    """Return machines of 4 GPUs with 4, 3, 2 and 1 of them free (Titan, Fig. 1)."""
    with RealSlurm(nodes=4, gpus=4, rack=2) as slurm:
        for taken in (1, 2, 3):
            slurm.comes_to(slurm.sbatch(f"-wnode{taken + 1}", f"--gpus-per-node={taken}"), "RUNNING")
        yield Driver(slurm)


def test_titan_figure_1_seen_from_inside_the_tasks(four_machines: Driver) -> None:
    slurm, out = four_machines.slurm, four_machines.slurm.folder / "out"
    reading = four_machines.source.read()
    state = cranny.ClusterState(reading.cluster)
    index = {machine.name: number for number, machine in enumerate(reading.cluster.machines)}
    for foreign in reading.foreign:
        ((name, count),) = foreign.gpus.items()
        state.place(cranny.Job(id=foreign.id, gpus=count), cranny.Placement(machines=(index[name],) * count))
    wait = f"while [ ! -e {out.parent}/go ]; do sleep 0.1; done"
    script = f"#!/bin/sh\n{wait}\nsrun {LAUNCH} {SAYS} > {out}\n"
    job = slurm.sbatch("--hold", "--comment=cranny", "-n4", "--gpus-per-task=1", script=script)
    placed = cranny.policy("titan").place(
        cranny.Job(id="w", gpus=4, collective="halving-doubling"), state.snapshot()
    )
    assert placed is not None
    what = four_machines.launch_of(job, [reading.cluster.machines[each].name for each in placed.machines])
    four_machines.backend.launch(what)
    slurm.comes_to(job, "RUNNING")
    jobs = four_machines.reader.table(four_machines.reader.clock()).jobs
    held = [(node, gpu) for each in jobs.values() for node, gpus in each.indices.items() for gpu in gpus]
    assert sorted(held) == sorted(set(held))  # none is held twice
    assert len(held) == 10  # all that are not free
    four_machines.backend.poll()
    ((_, _, given),) = four_machines.backend.given()
    assert {node: len(gpus) for node, gpus in given.items()} == {"node2": 2, "node3": 2}
    (out.parent / "go").touch()
    assert [each.reason for each in four_machines.ends()] == ["finished"]
    port = 20_000 + int(job) * 8 % 12_000
    assert sorted(out.read_text().splitlines()) == [
        f"0 of 4 node2 0/2 127.0.0.1 {port}",
        f"1 of 4 node3 0/2 127.0.0.1 {port}",
        f"2 of 4 node2 1/2 127.0.0.1 {port}",
        f"3 of 4 node3 1/2 127.0.0.1 {port}",
    ]


def test_a_job_that_was_not_placed_has_the_ranks_of_slurm(slurm: RealSlurm) -> None:
    out = slurm.folder / "unplaced"
    slurm.sbatch("-wnode[4-5]", "-n3", "--gpus-per-node=2", script=f"#!/bin/sh\nsrun -l {LAUNCH} {SAYS} > {out}\n")
    until(lambda: out.exists() and len(out.read_text().splitlines()) == 3, "three ranks")
    for line in out.read_text().splitlines():
        number, _, rest = line.strip().partition(": ")
        assert rest.startswith(f"{number} of 3 node")


def test_the_batch_script_can_ask_once_and_torchrun_gets_one_agent_a_node(
    slurm: RealSlurm, tmp_path: Path
) -> None:
    driver, out = Driver(slurm), slurm.folder / "torchrun"
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$SLURMD_NODENAME $CRANNY_RANKS $@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    tmp_path.chmod(0o755)
    ask = f'export PATH={tmp_path}:$PATH\neval "$({LAUNCH} --export)"\n'
    script = f"#!/bin/sh\n{ask}srun -n2 --ntasks-per-node=1 {LAUNCH} torchrun train.py --lr 1 > {out}\n"
    job = slurm.sbatch(
        "--hold", "--comment=cranny", "-N2", "--gpus-per-node=2", "--ntasks-per-node=2", script=script
    )
    driver.launch(job, ["node7", "node6", "node7", "node6"])
    assert [each.reason for each in driver.ends()] == ["finished"]
    port = 20_000 + int(job) * 8 % 12_000
    both = f"--master-addr=127.0.0.1 --master-port={port} train.py --lr 1"
    assert sorted(out.read_text().splitlines()) == [
        f"node6 node7,node6,node7,node6 --nnodes=2 --nproc-per-node=2 --node-rank=1 {both}",
        f"node7 node7,node6,node7,node6 --nnodes=2 --nproc-per-node=2 --node-rank=0 {both}",
    ]


def test_counts_of_tasks() -> None:
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert tasks_per_node("4") == [4]


@pytest.mark.parametrize(
    ("here", "tasks", "message"),
    [(3, 4, "3 of 4 tasks are on a, but 2 of 4 ranks"), (2, 6, "2 of 6 tasks are on a, but 2 of 4 ranks")],
)
def test_a_step_that_does_not_fit_the_placement_is_refused(here: int, tasks: int, message: str) -> None:
    task = TaskOfStep("7", 0, "a", 0, here, tasks, 0, 0, 2, part=False, launched_from="")
    with pytest.raises(SystemExit, match=message):
        variables(task, PlacedComment(nodes=("a", "b", "a", "b")))
    with pytest.raises(SystemExit, match="node c is not one of those"):
        variables(task._replace(node="c"), PlacedComment(nodes=("a", "b")))


def test_parts_of_a_heterogeneous_job_share_one_map() -> None:
    placed = PlacedComment(nodes=("a", "a", "b", "a"), master="a")
    parts = [("a", 0, 3), ("a", 1, 3), ("a", 2, 3), ("b", 0, 1)]
    ranks = [
        variables(TaskOfStep("7", 0, node, local, here, here, 0, 0, 1, part=True, launched_from=""), placed)[
            "RANK"
        ]
        for node, local, here in parts
    ]
    assert ranks == ["0", "1", "3", "2"]
