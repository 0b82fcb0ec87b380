"""Real processes that talk to the service: they save before they are stopped, report, and may lie."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Running, Serve, Start, until
from tests.service.reports import lines
from tests.service.test_controls import PAPER_S, mixed
from tests.service.training import SPEED

from cranny.channel.control import Control
from cranny.model.cluster import Cluster
from cranny.service.job_record import ResumedAt

HERE = Path(__file__).parent
ENV = {"PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE.parents[1]}"}
SLOW_S = 0.2  # an iteration on the slower GPU of a probe


def training(folder: Path, *options: str, **spec: Any) -> dict[str, Any]:
    """Return a job that trains, saves and reports."""
    command = [sys.executable, str(HERE / "training.py"), str(folder), *options]
    return {"command": command, "env": ENV, "profile": {"grad_bytes": 1.0, "iteration_ms": 10.0}, **spec}


def with_speeds(slow: float, fast: float, batch: int) -> tuple[str, ...]:
    """Return the options of a training whose GPUs on the second machine are faster, in samples a second."""
    return ("--speeds", json.dumps({"0": slow, "1": fast}), "--batch", str(batch))


def ranks_of(running: Running, job_id: str) -> int:
    """Return how many ranks of a job report."""
    number = len(running.service.scheduler.find(job_id).attempts)
    states = running.service.reports.states(job_id, number)
    return len([state for state in states.values() if state.number])


def attempts(running: Running, job_id: str) -> int:
    with running.service.lock:
        return len(running.service.scheduler.find(job_id).attempts)


def test_a_training_that_is_resized_loses_no_step(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cranny.service.learning.LEAST_S", 0.5)  # between events of what is learned
    running = start(Cluster.single_rack(1, 4), real=True, policy={"name": "has-exact"})
    spec = training(tmp_path, gpus=2, least_gpus=1, most_gpus=4, duration_s=1e6, checkpoint={"grace_s": 60})
    job = running.submit(**spec, name="elastic", restart_s=1)
    until(lambda: ranks_of(running, job) == 4)
    small = running.submit(command=["sleep", "600"], gpus=2, duration_s=600.0, checkpoint="none")
    until(lambda: attempts(running, job) == 2 and ranks_of(running, job) == 2)
    running.until(small, "running")
    service = running.service
    service.call(lambda now_s: service.scheduler.cancel(small, "ann", now_s)).result(60)
    until(lambda: attempts(running, job) == 3 and ranks_of(running, job) == 4)
    done = [line.split() for line in lines(tmp_path / "saved")]
    assert [(each[1], each[2], each[4]) for each in done] == [("1", "4", "resized"), ("2", "2", "resized")]

    def resumed() -> list[ResumedAt]:
        with service.lock:
            record = service.scheduler.find(job)
            return [each.resumed for each in record.attempts if each.resumed]

    until(lambda: len(resumed()) == 2)
    # Nothing is lost but what it goes on doing between its checkpoint and its end.
    assert [each.step for each in resumed()] == [int(each[3]) for each in done]
    assert service.scheduler.find(small).attempts[0].placement.machines == (0, 0)

    def restart_s() -> float | None:
        with service.lock:
            known = service.scheduler.records.profiles.get(("ann", "elastic"))
            return None if known is None else known.restart_s

    until(lambda: restart_s() is not None)
    learned_s = restart_s()
    assert learned_s is not None
    # A mean of both restarts, or the first alone: what they took, and the lost steps, of less than a second each.
    assert min(each.took_s for each in resumed()) <= learned_s
    assert learned_s <= max(each.took_s + (each.lost_steps or 0) for each in resumed())


def test_a_job_that_saves_by_a_signal_gets_it_before_it_is_stopped(start: Start, tmp_path: Path) -> None:
    running = start(Cluster.single_rack(1, 4), real=True, policy={"name": "has-exact"})
    script = "trap 'echo saved >> $OUT/saved; exit 0' USR1; echo up >> $OUT/up; while :; do sleep 0.05; done"
    elastic: dict[str, Any] = {"gpus": 2, "least_gpus": 1, "most_gpus": 4, "duration_s": 1e6, "restart_s": 1}
    checkpoint = {"signal": "SIGUSR1", "grace_s": 600}
    command = ["/bin/sh", "-c", script]
    job = running.submit(command=command, env={"OUT": str(tmp_path)}, checkpoint=checkpoint, **elastic)
    until(lambda: len(lines(tmp_path / "up")) == 4)
    small = running.submit(command=["sleep", "600"], gpus=2, duration_s=600.0)
    running.until(small, "running")
    assert lines(tmp_path / "saved") == ["saved"] * 4
    until(lambda: len(lines(tmp_path / "up")) == 6)
    assert attempts(running, job) == 2


def test_a_service_that_is_restarted_tells_jobs_the_same_and_reads_on(start: Start, tmp_path: Path) -> None:
    cluster = mixed()
    first = start(cluster, real=True, policy={"name": "best-fit"})
    job = first.submit(**training(tmp_path, gpus=4, speeds={"T4": 1.0, "V100": 3.0}))
    channel = first.service.log_folder(job, 1) / "channel"
    until(lambda: ranks_of(first, job) == 4)
    first.service.close()
    record = first.service.scheduler.find(job)
    before = first.service.control_of(record, record.attempts[-1])
    assert before.shares is not None or before.number > 0  # by now it may have learned that all GPUs are alike
    (channel / "control.json").unlink()
    second = start(cluster, real=True)
    until(lambda: (Control.read(channel) or Control()).number >= before.number)
    until(lambda: ranks_of(second, job) == 4)
    assert second.service.reports.bad == 0


HOSTILE = """
import os, sys, time
from pathlib import Path
from cranny.channel.report import Record, Report
folder, token = Path(os.environ["CRANNY_CHANNEL"]), os.environ["CRANNY_CHANNEL_TOKEN"]
service = int(sys.argv[1])
if os.environ["RANK"] != "0":
    time.sleep(600)
os.mkfifo(folder / f".control.json.{service}")
(folder / "control.json").unlink(missing_ok=True)
try:
    (folder / "control.json").mkdir()
except FileExistsError:  # the service was faster
    pass
number = 0
while True:
    number += 1
    now = time.time()
    lie = Record(number, now, 10 * number, 1, 1e6, samples=1e12, compute_s=1.0)
    Report(0, (lie,)).write(folder, token)
    time.sleep(0.01)
    (folder / "report-1.json").write_bytes(os.urandom(100_000))
    Report(2, (Record(1, now, 1, 1, 0.1),)).write(folder, "not the token")
    if number == 1:
        os.mkfifo(folder / "report-3.json")
    time.sleep(0.01)
"""


def test_hostile_jobs_change_nothing_for_others_and_are_counted(serve: Serve, tmp_path: Path) -> None:
    site = serve(mixed(4, 4), real=True, policy={"name": "best-fit"})
    running = site.running
    good = running.submit(**training(tmp_path, gpus=2, name="good"))
    until(lambda: ranks_of(running, good) == 2)
    channel = running.service.log_folder(good, 1) / "channel"
    placed = running.service.scheduler.engine.state.find(good).placement
    control = Control.read(channel)
    command = [sys.executable, "-c", HOSTILE, str(os.getpid())]
    bad = running.submit(
        user="bob", command=command, env=ENV, gpus=4, name="good", speeds={"T4": 1.0, "V100": 2.0}
    )
    count = running.service.reports
    until(lambda: count.bad_of(bad)[0] > 10)
    points = len(count.points(good))
    until(lambda: len(count.points(good)) > points + 1)
    late = running.submit(command=["true"])
    running.until(late, "done")
    assert count.bad_of(good) == (0, "")
    assert count.points(bad) == []
    assert Control.read(channel) == control
    assert running.service.scheduler.engine.state.find(good).placement == placed
    with running.service.lock:
        assert ("bob", "good") not in running.service.scheduler.records.profiles
    with site.client("root") as client:
        told = client.get(f"/api/v1/jobs/{bad}/measurements").json()
        assert told["bad_reports"] > 10
        assert told["bad_reason"]
        assert told["points"] == []
        metrics = client.get("/metrics").text
        shown = client.get(f"/api/v1/jobs/{good}/measurements").json()
    (line,) = [line for line in metrics.splitlines() if line.startswith("cranny_bad_reports_total")]
    assert float(line.split()[1]) > 10
    assert shown["points"][-1]["iteration_s"] >= 4 / SPEED
    assert shown["control"]["number"] == (control.number if control is not None else None)
    assert {each["rank"] for each in shown["ranks"]} == {0, 1}
    with site.client("bob") as client:
        assert client.get(f"/api/v1/jobs/{good}/measurements").status_code == 403
        assert client.get("/api/v1/profiles").json() == {"profiles": []}


def test_speeds_are_learned_from_ranks_on_gpus_of_two_types(serve: Serve, tmp_path: Path) -> None:
    site = serve(mixed(1, 1), real=True, policy={"name": "best-fit"})
    running = site.running
    job = running.submit(**training(tmp_path, *with_speeds(40.0, 80.0, 12), gpus=2, name="net"))
    records = running.service.scheduler.records
    until(lambda: ("ann", "net") in records.profiles)
    until(lambda: len(records.profiles["ann", "net"].rates) == 2)
    channel = running.service.log_folder(job, 1) / "channel"
    until(lambda: (Control.read(channel) or Control()).shares is not None)
    with site.client("ann") as client:
        (known,) = client.get("/api/v1/profiles").json()["profiles"]
        told = client.get(f"/api/v1/jobs/{job}/measurements").json()
    assert (known["user"], known["name"]) == ("ann", "net")
    assert known["rates"]["V100"] / known["rates"]["T4"] == pytest.approx(2.0, rel=0.1)
    assert told["profile"]["rates"] == known["rates"]
    assert told["control"]["shares"] == pytest.approx([1 / 3, 2 / 3], rel=0.1)


def test_the_optimum_of_has_is_found_without_speeds_in_any_job_file(start: Start, tmp_path: Path) -> None:
    """2 T4 and 2 V100: 10,592 s in the mean, with one probe for each of two jobs.

    Ranks really take as long as the speeds of the paper say, in proportion: that is all that the service can learn
    from. Sleeps of some 100 ms are long against what a busy machine adds to each of them.
    """
    running = start(mixed(), real=True, policy={"name": "has-exact"})
    throughput = {"resnet18": (275.0, 644.0), "vgg19": (884.0, 1754.0)}
    samples = {"resnet18": 200 * 100_000, "vgg19": 200 * 50_000}
    ids = {}
    for name, (slow, fast) in throughput.items():
        elastic = {"gpus": 1, "most_gpus": 4, "duration_s": samples[name] / slow, "checkpoint": {}, "restart_s": 1}
        options = with_speeds(slow, fast, batch=round(2 * SLOW_S * slow))
        ids[name] = running.submit(**training(tmp_path, *options, name=name, **elastic))

    def held(name: str) -> list[int]:
        with running.service.lock:
            state = running.service.scheduler.engine.state
            return sorted(state.find(ids[name]).placement.machines) if ids[name] in state else []

    until(lambda: (held("resnet18"), held("vgg19")) == ([1, 1], [0, 0]))
    with running.service.lock:
        records = running.service.scheduler.records
        probes = sum("probe" in each.facts for record in records.jobs.values() for each in record.attempts)
        rates = {name: records.profiles["ann", name].rates for name in ids}
    assert probes <= 3
    times_s = [samples[name] / sum(throughput[name][machine] for machine in held(name)) for name in ids]
    assert sum(times_s) / 2 == pytest.approx(PAPER_S, abs=0.1)
    for name, (slow, fast) in throughput.items():
        assert rates[name]["T4"] < slow  # as measured: a sleep takes longer than was asked for, never less
        assert rates[name]["V100"] < fast
        assert rates[name]["V100"] / rates[name]["T4"] == pytest.approx(fast / slow, rel=0.2)
    until(lambda: all(ranks_of(running, job_id) == 2 for job_id in ids.values()))
