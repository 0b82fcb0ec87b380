"""The cluster as it is read from a real Slurm."""

from pathlib import Path

import pytest

from cranny.backends.slurm.managed_jobs import ManagedJobs
from cranny.backends.slurm.slurm_source import SlurmSource
from cranny.model.cluster import Cluster
from cranny.service.clock import wall_clock
from cranny.service.job_spec import parse
from tests.slurm.driver import FAR, Driver
from tests.slurm.real_slurm import RealSlurm

LINKS = """
racks:
  - name: rack1
    uplink_gbps: 200
    machines: [{names: "node[1-4]", gpus: 8, uplink_gbps: 400}]
  - name: rack2
    machines: [{names: "node[5-7]", gpus: 8}]
"""


@pytest.fixture
def driver(slurm: RealSlurm) -> Driver:
    return Driver(slurm)


def test_nodes_switches_and_partitions_are_those_of_slurm(driver: Driver) -> None:
    cluster = driver.source.read().cluster
    assert cluster.node_names == (*(f"node{each}" for each in range(1, 9)), "rack1", "rack2", "tests")
    assert cluster.partitions == {"main": tuple(range(8))}
    first = cluster.machines[0]
    assert (first.gpus, first.gpu_type, first.features) == (8, "h100", frozenset({"row1"}))
    assert first.resources == {"cpus": 16, "memory_mb": 64_000}
    assert [cluster.parent[each] for each in range(8)] == [8] * 4 + [9] * 4
    assert driver.source.read().cluster is cluster  # nothing has changed


def test_links_have_the_speeds_of_a_cluster_file(driver: Driver, tmp_path: Path) -> None:
    file = tmp_path / "links.yaml"
    file.write_text(LINKS)
    source = SlurmSource(driver.reader, driver.managed, wall_clock, Cluster.from_file(file))
    cluster = source.read().cluster
    assert cluster.uplink_gbps[:4] == (400.0,) * 4
    assert cluster.uplink_gbps[8] == 200.0
    assert cluster.uplink_gbps[7] == 100.0  # which the file does not have


def test_jobs_of_others_hold_what_they_hold(driver: Driver, slurm: RealSlurm) -> None:
    job = slurm.sbatch("-wnode[2-3]", "-N2", "--gpus-per-node=3", "-c2", "--time=10")
    slurm.comes_to(job, "RUNNING")
    reading = driver.source.read()
    (foreign,) = reading.foreign
    assert (foreign.id, foreign.user) == (job, "root")
    assert foreign.gpus == {"node2": 3, "node3": 3}
    assert foreign.resources["node2"] == {"cpus": 2, "memory_mb": 200}
    assert foreign.ends_s is not None
    assert 0 < foreign.ends_s - reading.read_s <= 600
    assert not reading.waiting


@pytest.mark.parametrize(
    ("options", "gpus", "each"),
    [
        (("-N2", "--gpus-per-node=3"), 6, 3),
        (("-n6", "--gpus-per-task=1"), 6, 6),
        (("-n12", "--gpus-per-task=1"), 12, 6),  # as few nodes as can be filled evenly
        (("-n8", "--ntasks-per-node=2", "--gpus-per-task=1"), 8, 2),
        (("--gpus=16",), 16, 8),
        (("-N4", "--gpus=16"), 16, 4),
        (("--gres=gpu:h100:2",), 2, 2),
        (("-n3", "--gpus-per-task=4"), 12, 4),
    ],
)
def test_shapes_of_jobs(driver: Driver, slurm: RealSlurm, options: tuple[str, ...], gpus: int, each: int) -> None:
    slurm.sbatch("--hold", "--comment=cranny", *options)
    (waiting,) = driver.source.read().waiting
    assert (waiting.spec["gpus"], waiting.spec["constraints"]["per_machine"]) == (gpus, each)


def test_a_job_says_what_it_needs(driver: Driver, slurm: RealSlurm) -> None:
    needs = ("-Crow1", "-xnode4", "--mem-per-gpu=500", "-c3", "--ntasks-per-node=2", "--gpus-per-node=h100:2")
    job = slurm.sbatch(FAR, "--comment=cranny model=vgg16 tp=2", "--time=30", *needs)
    (waiting,) = driver.source.read().waiting
    assert (waiting.id, waiting.user) == (job, "root")
    parse(waiting.spec).check_constraints(driver.source.read().cluster)
    assert waiting.priority > 0  # Slurm's own, since it is not held
    assert waiting.spec == {
        "command": ["sbatch"],
        "gpus": 2,
        "resources": {"cpus": 3, "memory_mb": 500},
        "time_limit_s": 1800.0,
        "checkpoint": "none",
        "model": "vgg16",
        "tp": 2,
        "constraints": {
            "per_machine": 2,
            "exclude": ["node4"],
            "features": ["row1"],
            "gpu_type": "h100",
            "partition": "main",
        },
        "name": waiting.spec["name"],
    }


def test_only_jobs_that_opted_in_are_placed(driver: Driver, slurm: RealSlurm) -> None:
    one = ("--gpus=1",)
    slurm.sbatch("--hold", *one)  # held for another reason
    slurm.sbatch("--begin=now+1hour", "--comment=cranny", *one)  # the user's own begin
    held = slurm.sbatch("--hold", "--comment=cranny", *one)
    by_admin = slurm.sbatch("--hold", "--comment=cranny", *one)
    slurm.call("scontrol", "hold", by_admin)
    first = slurm.sbatch("--hold", "--comment=cranny", *one)
    slurm.sbatch("--hold", "--comment=cranny", f"--dependency=afterok:{first}", *one)
    slurm.call("scontrol", "update", f"JobId={held}", "AdminComment=cranny after=9999999999")
    assert [job.id for job in driver.source.read().waiting] == [first]
    every = SlurmSource(driver.reader, ManagedJobs(), wall_clock, partitions=frozenset({"main"}))
    assert len(every.read().waiting) == 2  # held by their users in that partition


def test_nodes_that_are_down_or_drained_say_why(driver: Driver, slurm: RealSlurm) -> None:
    slurm.lose_node("node8", "fan")
    slurm.call("scontrol", "update", "NodeName=node7", "State=DRAIN", "Reason=disk")
    reading = driver.source.read()
    assert reading.failed == {"node8": "down in Slurm: fan"}
    assert reading.unavailable == {"node7": "drain in Slurm: disk"}


def test_reservations_have_their_nodes_users_and_times(driver: Driver, slurm: RealSlurm) -> None:
    kept = {
        "r": ("nodes=node8", "users=root", "starttime=now"),
        "m": ("nodes=node[6-7]", "users=root", "flags=maint"),
    }
    for name, options in kept.items():
        start = () if name == "r" else ("starttime=now+1hour",)
        slurm.call("scontrol", "create", "reservation", f"ReservationName={name}", "duration=60", *start, *options)
    try:
        found = {each.name: each for each in driver.source.read().reservations}
    finally:
        for name in kept:
            slurm.call("scontrol", "delete", f"ReservationName={name}")
    assert found["r"].machines == {"node8"}
    assert (found["r"].users, found["r"].maintenance) == (frozenset({"root"}), False)
    assert found["m"].machines == {"node6", "node7"}
    assert found["m"].maintenance
    assert abs(found["r"].start_s - wall_clock()) < 60
    assert found["m"].end_s - found["m"].start_s == 3600


def test_how_often_slurm_is_asked_is_bounded(driver: Driver) -> None:
    driver.reader.interval_s = 3600.0
    driver.source.read()
    before = driver.commands.calls
    for _ in range(50):
        driver.backend.poll()
        driver.reader.table()
    assert driver.commands.calls == before
