"""Attempts of a real process say from which step they went on, also if the service was restarted in between."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Serve, until
from tests.service.test_channels import ENV, HERE, ranks_of

from cranny.model.cluster import Cluster
from cranny.service.job_record import JobRecord, ResumedAt

CLUSTER = Cluster.single_rack(1, 1)
# A training that fails as soon as there is a file of this name; it saves nothing, so the next attempt begins anew.
UNTIL_STOPPED = """{training} & trains=$!
while [ ! -e {folder}/stop-$CRANNY_ATTEMPT ]; do sleep 0.05; done
kill $trains; wait $trains; exit 1"""


def failing(folder: Path) -> str:
    words = [sys.executable, HERE / "training.py", folder]
    return UNTIL_STOPPED.format(training=shlex.join(map(str, words)), folder=shlex.quote(str(folder)))


@pytest.mark.parametrize("restarted", [False, True])
def test_an_attempt_says_from_which_step_it_went_on(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarted: bool
) -> None:
    monkeypatch.setattr("cranny.service.learning.LEAST_S", 0.5)
    site = serve(CLUSTER, real=True, policy={"name": "best-fit"})
    running, service = site.running, site.running.service
    spec: dict[str, Any] = {"command": failing(tmp_path), "shell": True, "env": ENV}
    job = running.submit(**spec, max_retries=1, name="net")
    until(lambda: ranks_of(running, job) == 1)
    service.call(partial(service.scheduler.drain, 0, "root")).result(60)
    (tmp_path / "stop-1").touch()
    running.until(job, "waiting")
    reached = service.scheduler.find(job).attempts[0].last
    assert reached is not None
    assert reached.step > 0
    if restarted:
        service.close()
        site = serve(CLUSTER, real=True)
        running, service = site.running, site.running.service
    service.call(partial(service.scheduler.resume, 0, "root")).result(60)

    def record() -> JobRecord:
        with service.lock:
            return service.scheduler.find(job)

    until(lambda: len(record().attempts) == 2 and record().attempts[1].resumed is not None)
    resumed = record().attempts[1].resumed
    assert resumed is not None
    assert resumed == ResumedAt(0, resumed.took_s, reached.step)
    with site.client() as client:
        first, second = client.get(f"/api/v1/jobs/{job}").json()["attempts"]
    assert (first["resumed"], second["resumed"]) == (None, resumed._asdict())
    until(
        lambda: (known := service.scheduler.records.profiles.get(("ann", "net"))) and known.restart_s is not None
    )
    again_s = min(reached.step * reached.iteration_s, reached.ran_s)
    assert service.scheduler.records.profiles["ann", "net"].restart_s == pytest.approx(resumed.took_s + again_s)
