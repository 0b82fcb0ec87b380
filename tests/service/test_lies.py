"""Real jobs share a link with one that lies about itself, so well that nothing it says is impossible."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Running, Start, until
from tests.service.reports import lines
from tests.service.test_channels import ENV, HERE, training
from tests.service.test_paces import LONGEST

from cranny.channel.control import Control
from cranny.model.cluster import Cluster
from cranny.service import learning, scheduler

CLUSTER = Cluster.fat_tree(2, 3, 1, link_gbps=0.4, oversubscription=3)
COMPUTE_S = EXCHANGE_S = 0.05
GRADIENT_BYTES = 2.5e6  # that take so long on the link
ITERATION_S = COMPUTE_S + EXCHANGE_S
PROFILE = {"grad_bytes": GRADIENT_BYTES, "iteration_ms": 1e3 * COMPUTE_S}
OFTEN_S = 1.0  # between changes that follow reports, ten and sixty times as often as else: lies do more harm
EVERY_S = 1.5  # between lies
HUGE = 1e12  # bytes: as many as are believed
LIES = [
    (1.04 * ITERATION_S, GRADIENT_BYTES),  # lets others be as slow
    (0.96 * ITERATION_S, GRADIENT_BYTES),
    (1.02 * ITERATION_S, HUGE),  # lets the link look full
    (1.2 * ITERATION_S, GRADIENT_BYTES),  # fits no other job's period
    (1.5 * ITERATION_S, HUGE),
    *[(ITERATION_S, GRADIENT_BYTES)] * 2,  # the truth in the end, until averages forget the lies
]


def on_machines(running: Running, machines: tuple[int, ...], **spec: Any) -> str:
    """Submit a job while no other machines are to be had."""
    service = running.service
    for machine in machines:
        service.call(lambda now_s, it=machine: service.scheduler.resume(it, "root", now_s)).result(60)  # type: ignore[misc]
    job = running.submit(gpus=len(machines), profile=PROFILE, **spec)
    running.until(job, "running")
    return job


@pytest.mark.parametrize("policy", ["themis+cassini", "cranny"])
def test_a_plausible_lie_lengthens_periods_of_others_by_little_or_lets_them_run_freely(
    policy: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "REPACE_S", OFTEN_S)
    monkeypatch.setattr(learning, "LEAST_S", OFTEN_S)
    running = start(CLUSTER, real=True, policy={"name": policy})
    service = running.service
    for machine in range(6):
        service.call(lambda now_s, it=machine: service.scheduler.drain(it, "root", now_s)).result(60)  # type: ignore[misc]
    computing = ("--batch", "2", "--speeds", json.dumps({str(each): 1 / COMPUTE_S for each in range(6)}))
    exchanging = ("--exchange-s", str(EXCHANGE_S), "--gradient-bytes", str(GRADIENT_BYTES))
    spec = training(tmp_path, *computing, *exchanging)
    honest = on_machines(running, (0, 3), command=spec["command"], env=spec["env"], checkpoint={"grace_s": 60})
    told = tmp_path / "told"
    command = [sys.executable, str(HERE / "liar.py"), str(told), str(EVERY_S), str(EXCHANGE_S), json.dumps(LIES)]
    liar = on_machines(running, (1, 4), user="bob", command=command, env=ENV)
    channel = service.log_folder(honest, 1) / "channel"

    def pace() -> object:
        return (Control.read(channel) or Control()).pace

    until(pace)
    until(lambda: len(lines(told)) == len(LIES))
    points = len(service.reports.points(honest))
    until(lambda: pace() and len(service.reports.points(honest)) > points + 1)  # it recovers from the lies

    paced = [event.body for event in list(service.recent) if event.kind == "paced" and event.job == honest]
    periods_s = [body["period_s"] for body in paced if body["period_s"] is not None]
    assert len(paced) > len(periods_s) > 1  # lies have changed its period, and let it run freely for a while
    for body in paced:
        assert (body["period_s"] or 0.0) <= LONGEST * (body["iteration_s"] or ITERATION_S)
    with service.lock:
        record = service.scheduler.find(honest)
        assert (record.status, len(record.attempts)) == ("running", 1)  # neither moved nor stopped
    assert service.reports.bad_of(honest) == (0, "")
    assert service.reports.bad_of(liar)[0] > 0  # HUGE is counted
    made = service.reports.points(honest)
    wall_s = sum(each.iterations * each.iteration_s for each in made)
    waited_s = sum(each.iterations * each.waited_s for each in made)
    assert wall_s <= LONGEST * (wall_s - waited_s)
