"""The REST interface, asked over real HTTP."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.service.conftest import COMPILE_S, Serve, Site, until

from cranny.service.auth import SESSION_S, Authenticator, Caller, UnauthenticatedError
from cranny.service.limits import Limits

JOB: dict[str, Any] = {"command": ["true"], "gpus": 4, "duration_s": 600}
JOBS = "/api/v1/jobs"


@pytest.fixture
def site(serve: Serve) -> Site:
    return serve()


@pytest.fixture
def root(site: Site) -> Iterator[httpx.Client]:
    with site.client("root") as client:
        yield client


def submit(client: httpx.Client, **change: Any) -> Any:
    answer = client.post(JOBS, json={**JOB, **change})
    assert answer.status_code == 201, answer.text
    return answer.json()


def set_policy(client: httpx.Client, **setting: Any) -> Any:
    """Set a policy, as commands do it: again if it is still being compiled."""
    answer = client.put("/api/v1/policy", json=setting)
    until_s = time.monotonic() + COMPILE_S
    while answer.status_code == 503 and time.monotonic() < until_s:
        time.sleep(1.0)
        answer = client.put("/api/v1/policy", json=setting)
    assert answer.is_success, answer.text
    return answer.json()


def problem(answer: httpx.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["detail"]
    return told


def test_a_job_is_placed_runs_and_is_cancelled(site: Site, root: httpx.Client) -> None:
    job = submit(root, name="first", model="vgg16")
    assert (job["id"], job["user"], job["machines"]) == ("job-1", "root", ["rack0-machine0"])
    assert job["status"] in {"starting", "running"}
    site.running.until("job-1", "running")
    detail = root.get(f"{JOBS}/job-1").json()
    assert detail["expected_end_s"] == pytest.approx(detail["attempts"][0]["placed_s"] + 600)
    assert root.get(JOBS).json()["jobs"][0]["expected_end_s"] == detail["expected_end_s"]
    assert detail["placement"]["names"] == ["rack0-machine0"] * 4
    assert detail["placement"]["gpus"] == [0, 1, 2, 3]
    nodes = root.get("/api/v1/nodes").json()["nodes"]
    assert nodes[0]["slots"] == ["job-1"] * 4
    assert [node["free"] for node in nodes] == [0, 4, 4, 4]
    assert root.post(f"{JOBS}/job-1/cancel").json()["status"] in {"stopping", "cancelled"}
    site.running.until("job-1", "cancelled")
    assert root.get(f"{JOBS}/job-1").json()["expected_end_s"] is None
    problem(root.post(f"{JOBS}/job-1/cancel"), 409)
    problem(root.get(f"{JOBS}/job-2"), 404)


def test_the_same_key_gives_the_same_job(root: httpx.Client) -> None:
    key = {"Idempotency-Key": "abc"}
    first = root.post(JOBS, json=JOB, headers=key)
    again = root.post(JOBS, json=JOB, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    problem(root.post(JOBS, json={**JOB, "gpus": 5}, headers=key), 409)
    assert root.get(JOBS).json()["total"] == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"gpus": 4}, "command"),
        ({**JOB, "gpus": 0}, "gpus"),
        ({**JOB, "constraints": {"exclude": [3]}}, "constraints.exclude[0]"),
        ({**JOB, "env": {"A": 1}}, "env.A"),
        ([], ""),
    ],
)
def test_a_bad_job_is_refused_with_its_field(root: httpx.Client, body: Any, field: str) -> None:
    told = problem(root.post(JOBS, json=body), 422)
    assert told["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"gpus": 17}, "gpus: needs 17 GPUs, the cluster has 16"),
        ({"constraints": {"gpu_type": "H100"}}, "gpus: needs 4 H100 GPUs, the cluster has 0"),
        ({"constraints": {"exclude": ["nowhere"]}}, "constraints.exclude[0]: unknown machine 'nowhere'"),
        ({"gpus": 9, "constraints": {"same_rack": "required"}}, "constraints: does not fit the empty cluster"),
        ({"model": "nothing"}, "unknown model 'nothing'"),
        ({"tp": 3}, "cannot be split"),
        (
            {"command": ["torchrun", "--nproc-per-node=4", "a.py"]},
            "its options follow from gpus and the placement",
        ),
        ({"command": ["/opt/bin/torchrun", "a.py"]}, "write `torchrun` and then the script"),
        ({"command": ["torchrun"]}, "write `torchrun` and then the script"),
    ],
)
def test_a_job_that_could_never_start_is_refused(root: httpx.Client, change: Any, detail: str) -> None:
    assert detail in problem(root.post(JOBS, json={**JOB, **change}), 422)["detail"]
    assert root.get(JOBS).json()["total"] == 0


def test_what_is_no_json_or_too_large_is_refused(root: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    assert problem(root.post(JOBS, content=b"{", headers=headers), 422)["detail"] == "the body is not JSON"
    large = json.dumps({**JOB, "name": "x" * 300_000})
    problem(root.post(JOBS, content=large, headers=headers), 413)

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 10_000

    problem(root.post(JOBS, content=chunks(), headers=headers), 413)
    problem(root.get("/api/v1/nothing"), 404)
    problem(root.put(JOBS), 405)


def test_strangers_get_nothing(site: Site) -> None:
    with site.client(None) as stranger:
        for path in (JOBS, f"{JOBS}/job-1", "/api/v1/nodes", "/api/v1/events", "/api/v1/cluster", "/api/v1/me"):
            answer = stranger.get(path)
            problem(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
        problem(stranger.get(JOBS, headers={"Authorization": "Bearer cranny_wrong"}), 401)
        problem(stranger.get(JOBS, headers={"Authorization": "Basic YTpi"}), 401)
        assert stranger.get("/healthz").status_code == 200
        assert stranger.get("/readyz").json() == {"ready": True}


def test_users_see_and_cancel_their_own_jobs_only(site: Site) -> None:
    with site.client("ann") as ann, site.client("bob") as bob, site.client("eve") as eve:
        submit(ann, env={"MY_PASSWORD": "hunter22", "PLAIN": "x"})
        submit(bob)
        assert [job["id"] for job in ann.get(JOBS).json()["jobs"]] == ["job-1"]
        assert ann.get(JOBS, params={"user": "bob"}).json()["total"] == 1
        assert eve.get(JOBS).json()["total"] == 2
        for path in ("", "/explain", "/logs", "/traffic"):
            problem(bob.get(f"{JOBS}/job-1{path}"), 403)
        problem(bob.post(f"{JOBS}/job-1/cancel"), 403)
        problem(eve.post(JOBS, json=JOB), 403)
        problem(eve.post(f"{JOBS}/job-1/cancel"), 403)
        for who in (ann, eve):
            problem(who.post("/api/v1/nodes/0/drain"), 403)
            problem(who.put("/api/v1/policy", json={"name": "titan"}), 403)
            problem(who.get("/api/v1/tokens"), 403)
        for who in (ann, eve):
            told = who.get(f"{JOBS}/job-1")
            assert told.json()["spec"]["env"] == {"MY_PASSWORD": "***", "PLAIN": "x"}
            assert "hunter22" not in told.text


def test_events_hide_what_jobs_of_others_do(site: Site) -> None:
    with site.client("ann") as ann, site.client("bob") as bob:
        submit(ann, name="quiet", env={"MY_PASSWORD": "hunter22"})
        seen = bob.get("/api/v1/events", params={"after": 0, "follow": False}).text
        own = ann.get("/api/v1/events", params={"after": 0, "follow": False}).text
    assert '"kind": "submitted", "job": "job-1"' in seen
    assert "quiet" not in seen
    assert "quiet" in own
    assert "hunter22" not in own
    assert "command" not in own


def test_pages_follow_one_another(site: Site, root: httpx.Client) -> None:
    for number in range(7):
        submit(root, gpus=16, priority=number % 2)
    first = root.get(JOBS, params={"limit": 3}).json()
    assert ([job["id"] for job in first["jobs"]], first["next"], first["total"]) == (
        ["job-1", "job-2", "job-3"],
        "job-3",
        7,
    )
    rest = root.get(JOBS, params={"limit": 100, "after": first["next"]}).json()
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (["job-4", "job-5", "job-6", "job-7"], None)
    newest = root.get(JOBS, params={"limit": 2, "newest": True}).json()
    assert [job["id"] for job in newest["jobs"]] == ["job-7", "job-6"]
    more = root.get(JOBS, params={"limit": 2, "newest": True, "after": newest["next"]}).json()
    assert [job["id"] for job in more["jobs"]] == ["job-5", "job-4"]
    waiting = root.get(JOBS, params={"status": "waiting", "limit": 4}).json()
    assert [job["id"] for job in waiting["jobs"]] == ["job-2", "job-4", "job-6", "job-3"]
    after = root.get(JOBS, params={"status": "waiting", "after": waiting["next"]}).json()
    assert [job["id"] for job in after["jobs"]] == ["job-5", "job-7"]
    assert waiting["jobs"][0]["reason"] == "needs 16 GPUs, 0 free"
    assert waiting["jobs"][0]["predicted_start_s"] > site.running.service.now_s()
    problem(root.get(JOBS, params={"after": "job-99"}), 422)
    problem(root.get(JOBS, params={"limit": 0}), 422)
    problem(root.get(JOBS, params={"status": "asleep"}), 422)


def job_events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield events of jobs; those that tell of a token may be stored after a stream has begun."""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if event["job"] is not None:
                yield event


def test_changes_are_streamed_and_resumed(root: httpx.Client) -> None:
    with root.stream("GET", "/api/v1/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        came = job_events(answer)
        submit(root)
        seen = [next(came) for _ in range(3)]
    assert [(event["kind"], event["job"]) for event in seen] == [
        ("submitted", "job-1"),
        ("placed", "job-1"),
        ("launched", "job-1"),
    ]
    assert seen[1]["machines"] == ["rack0-machine0"]
    resumed = {"Last-Event-ID": str(seen[0]["seq"])}
    with root.stream("GET", "/api/v1/events", headers=resumed) as answer:
        assert next(job_events(answer)) == seen[1]


def test_a_stream_ends_when_its_token_is_revoked(site: Site, root: httpx.Client) -> None:
    made = root.post("/api/v1/tokens", json={"user": "cid", "role": "user"}).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    with httpx.stream("GET", f"{site.url}/api/v1/events", headers=headers) as answer:
        came = job_events(answer)
        submit(root)
        assert next(came)["kind"] == "submitted"
        root.delete(f"/api/v1/tokens/{made['id']}")
        submit(root)
        assert {event["job"] for event in came} <= {"job-1"}  # it ends, or this would wait for ever


def test_a_waiting_job_is_explained(site: Site, root: httpx.Client) -> None:
    submit(root, gpus=4, duration_s=720)  # on one machine, so that nothing slows it
    submit(root, gpus=13)
    submit(root, gpus=4, duration_s=7200)
    first = root.get(f"{JOBS}/job-2/explain").json()
    assert first["kind"] == "too-few-gpus"
    assert first["reason"] == "needs 13 GPUs, 12 free; is promised a start in 12 min at the latest"
    assert "job-1 ends in about 12 min and frees 4" in first["evidence"]
    assert first["next_step"].startswith("request 12 GPUs or fewer")
    behind = root.get(f"{JOBS}/job-3/explain").json()
    assert behind["kind"] == "behind-others"
    assert (
        behind["reason"] == "behind job-2, which is promised a start in 12 min at the latest; it might delay that"
    )
    assert behind["next_step"] == "wait until job-2, which is first in the queue, has started"
    placed = root.get(f"{JOBS}/job-1/explain").json()
    assert placed["kind"] == "placed"
    assert placed["facts"]["machines_used"] == 1
    submit(root, gpus=9, constraints={"exclude": ["rack1-machine1"]}, priority=5)
    assert root.get(f"{JOBS}/job-4/explain").json()["kind"] == "too-few-gpus"
    root.post("/api/v1/nodes/rack1-machine1/drain")
    assert "cranny resume rack1-machine1" in root.get(f"{JOBS}/job-2/explain").json()["next_step"]
    assert site.running.service.scheduler.engine.queue.has("job-4")


def test_a_plan_starts_nothing(site: Site, root: httpx.Client) -> None:
    submit(root, gpus=10)
    before = site.running.service.scheduler.records.seq
    fits = root.post("/api/v1/plan", json={**JOB, "gpus": 6}).json()
    assert fits["starts"]
    assert len(fits["placement"]["names"]) == 6
    waits = root.post("/api/v1/plan", json={**JOB, "gpus": 7}).json()
    assert not waits["starts"]
    assert waits["explanation"]["reason"].startswith("needs 7 GPUs, 6 free")
    until(lambda: site.running.status("job-1") == "running")
    assert site.running.service.scheduler.records.seq <= before + 1  # the launch that was under way
    problem(root.post("/api/v1/plan", json={**JOB, "gpus": 99}), 422)


def test_another_policy_decides_from_now_on(site: Site, root: httpx.Client) -> None:
    set_policy(root, name="titan")  # first come, first served
    submit(root, gpus=12)
    submit(root, gpus=6)
    submit(root, gpus=2, duration_s=10)
    assert site.running.status("job-3") == "waiting"
    set_to = set_policy(root, name="best-fit", order="backfill")
    assert (set_to["name"], set_to["order"]) == ("best-fit", "backfill")
    assert site.running.status("job-3") in {"starting", "running"}
    assert "did you mean 'titan'" in problem(root.put("/api/v1/policy", json={"name": "titn"}), 422)["detail"]
    problem(root.put("/api/v1/policy", json={"name": "titan", "order": "lifo"}), 422)
    problem(root.put("/api/v1/policy", json={"name": "titan", "options": {"nothing": 1}}), 422)
    assert root.get("/api/v1/policy").json()["name"] == "best-fit"


def test_a_policy_with_a_period_decides_at_its_time(root: httpx.Client, site: Site) -> None:
    set_policy(root, name="titan", period_s=3600)
    assert submit(root)["status"] == "waiting"
    set_policy(root, name="titan", period_s=0.2)
    problem(root.put("/api/v1/policy", json={"name": "titan", "period_s": 0.0001}), 422)
    site.running.until("job-1", "running")
    submit(root)
    site.running.until("job-2", "running")


def test_a_drained_machine_gets_no_jobs(root: httpx.Client) -> None:
    set_policy(root, name="best-fit")  # which is ready by then
    assert root.post("/api/v1/nodes/rack0-machine0/drain").json()["state"] == "drained"
    assert submit(root)["machines"] == ["rack0-machine1"]
    assert root.post("/api/v1/nodes/0/resume").json()["state"] == "up"
    told = root.get("/api/v1/events", params={"after": 0, "follow": False}).text
    assert told.count('"name": "rack0-machine0"') == 2
    problem(root.post("/api/v1/nodes/rack9-machine9/drain"), 404)
    problem(root.post("/api/v1/nodes/..%2F..%2Fetc/drain"), 404)


def test_only_so_many_jobs_of_a_user_are_taken(serve: Serve) -> None:
    site = serve(limits=Limits(jobs_per_user=2))
    with site.client("ann") as ann, site.client("bob") as bob:
        submit(ann)
        submit(ann)
        problem(ann.post(JOBS, json=JOB), 429)
        submit(bob)


def test_tokens_are_made_and_revoked(site: Site, root: httpx.Client) -> None:
    made = root.post("/api/v1/tokens", json={"user": "cid", "role": "user"}).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert httpx.get(f"{site.url}/api/v1/me", headers=headers).json() == {"user": "cid", "role": "user"}
    listed = root.get("/api/v1/tokens")
    assert made["token"] not in listed.text
    assert "hash" not in listed.text
    stored = site.running.service.store.tokens()
    assert all(made["token"] not in row for row in stored)
    assert root.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    problem(httpx.get(f"{site.url}/api/v1/me", headers=headers), 401)
    problem(root.delete(f"/api/v1/tokens/{made['id']}"), 404)
    problem(root.post("/api/v1/tokens", json={"user": "cid", "role": "king"}), 422)


def test_metrics_are_as_prometheus_reads_them(root: httpx.Client, site: Site) -> None:
    submit(root, gpus=6)
    submit(root, gpus=12)
    submit(root, gpus=12)
    site.running.until("job-1", "running")
    text = root.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert all(name.startswith("cranny_") for name in lines)
    assert lines['cranny_pending_jobs{reason="too-few-gpus"}'] == "2.0"
    assert lines['cranny_jobs{status="running"}'] == "1.0"
    assert lines["cranny_largest_startable_job_gpus"] == "10.0"
    assert lines["cranny_fragmentation_ratio"] == "0.25"
    assert float(lines['cranny_link_load_ratio{tier="machine"}']) > 0
    assert float(lines["cranny_decision_seconds_count"]) >= 3


def test_the_rest_is_shown(root: httpx.Client, site: Site) -> None:
    submit(root, gpus=6, model="vgg16")
    site.running.until("job-1", "running")
    whole = root.get("/api/v1/cluster").json()
    assert (whole["gpus"], whole["free_gpus"], whole["counts"]["running"], whole["mode"]) == (16, 10, 1, "run")
    traffic = root.get(f"{JOBS}/job-1/traffic").json()
    assert traffic["cross_machine_bytes"] > 0
    assert sum(pair["bytes"] for pair in traffic["machines"]) == pytest.approx(traffic["cross_machine_bytes"])
    links = root.get("/api/v1/links").json()["links"]
    assert [link["tier"] for link in links] == [0, 0, 0, 0, 1, 1]
    assert root.get("/api/v1/history").json()["points"][-1]["held_gpus"] == 6
    assert "titan" in root.get("/api/v1/policies").json()["policies"]
    assert "vgg16" in root.get("/api/v1/models").json()["models"]
    assert root.get("/openapi.json").json()["info"]["title"] == "cranny"
    assert "text/html" in root.get("/").headers["content-type"]


def test_a_browser_logs_in_once_by_link_and_sends_its_session_as_a_header(site: Site) -> None:
    code = site.authenticator.one_time_code(Caller("root", "admin"))
    with httpx.Client(base_url=site.url) as browser:
        answer = browser.post("/api/v1/session", json={"code": code})
        assert (answer.status_code, answer.json()["role"]) == (201, "admin")
        own = {"Authorization": f"Bearer {answer.json()['session']}"}
        assert browser.get("/api/v1/me", headers=own).json()["role"] == "admin"
        assert browser.post(JOBS, json=JOB, headers=own).status_code == 201
        problem(browser.post("/api/v1/session", json={"code": code}), 401)
        ann = browser.post("/api/v1/session", json={"token": site.tokens["ann"]}).json()
        assert (ann["user"], ann["role"]) == ("ann", "user")
        problem(browser.post("/api/v1/session", json={"token": "wrong"}), 401)
        for both in ({}, {"token": site.tokens["ann"], "code": code}):
            assert "either a token or a code" in problem(browser.post("/api/v1/session", json=both), 422)["detail"]


def test_a_session_outlives_the_service_and_ends_when_its_time_is_over(site: Site) -> None:
    now_s = 1_000.0
    store = site.running.service.store
    before = Authenticator(store, loopback=True, clock=lambda: now_s)
    by_link = before.redeem(before.one_time_code(Caller("root", "admin"))).secret
    by_token = before.log_in(site.tokens["ann"]).secret
    after = Authenticator(store, loopback=True, clock=lambda: now_s)  # as if started again
    assert after.by_session(by_link) == Caller("root", "admin")
    assert after.by_session(by_token) == Caller("ann", "user")
    assert all(by_link not in row and by_token not in row for row in store.sessions())  # only hashes are kept
    now_s += SESSION_S
    for session in (by_link, by_token, "made up"):
        with pytest.raises(UnauthenticatedError, match="session expired"):
            after.by_session(session)


def test_logging_out_ends_one_session_and_revoking_a_token_all_that_it_opened(
    site: Site, root: httpx.Client
) -> None:
    made = root.post("/api/v1/tokens", json={"user": "cid", "role": "user"}).json()
    browsers = [httpx.Client(base_url=site.url) for _ in range(3)]
    for browser, token in zip(browsers, (made["token"], made["token"], site.tokens["ann"]), strict=True):
        session = browser.post("/api/v1/session", json={"token": token}).json()["session"]
        browser.headers["Authorization"] = f"Bearer {session}"
        assert browser.get("/api/v1/me").is_success
    assert browsers[0].delete("/api/v1/session").status_code == 204
    problem(browsers[0].get("/api/v1/me"), 401)
    assert browsers[1].get("/api/v1/me").is_success
    problem(root.delete("/api/v1/session"), 409)  # a token is no session
    root.delete(f"/api/v1/tokens/{made['id']}")
    problem(browsers[1].get("/api/v1/me"), 401)
    assert browsers[2].get("/api/v1/me").json()["user"] == "ann"
    for browser in browsers:
        browser.close()
