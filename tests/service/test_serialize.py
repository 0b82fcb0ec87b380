"""What is shown of jobs: where they run while they do, and where they ran before."""

from tests.service.conftest import Serve, until

from cranny.backends.fake import FakeRun


def test_a_job_that_waits_again_shows_no_place_but_what_it_tried(serve: Serve) -> None:
    site = serve(course=lambda _: FakeRun(run_s=1e9, exit_code=3))
    with site.client() as root:
        spec = {"command": ["x"], "gpus": 16, "max_retries": 5}
        root.post("/api/v1/jobs", json=spec)
        root.post("/api/v1/jobs", json={**spec, "priority": 5})  # takes the GPUs when the first has failed
        site.running.until("job-1", "running")
        site.running.processes.by_attempt["job-1", 1].ends_at = 0.0
        site.running.until("job-2", "running")
        job = root.get("/api/v1/jobs/job-1").json()
        assert (job["status"], job["machines"], job["started_s"], job["exit_code"]) == ("waiting", [], None, None)
        assert job["placement"] is None
        assert [(each["attempt"], each["outcome"], each["exit_code"]) for each in job["earlier"]] == [
            (1, "failed", 3)
        ]
        assert job["earlier"] == job["attempts"]
        root.post("/api/v1/jobs/job-1/cancel")  # while it waits: nothing ended with its attempt
        line = next(each for each in root.get("/api/v1/jobs").json()["jobs"] if each["id"] == "job-1")
        assert (line["status"], line["machines"], line["started_s"]) == ("cancelled", [], None)
        other = root.get("/api/v1/jobs/job-2").json()
        assert (len(other["machines"]), other["earlier"]) == (4, [])


def test_a_job_that_is_over_shows_where_it_ended(serve: Serve) -> None:
    site = serve(course=lambda _: FakeRun(run_s=0.05, exit_code=3))
    with site.client() as root:
        root.post("/api/v1/jobs", json={"command": ["x"], "gpus": 2, "max_retries": 1})
        until(lambda: root.get("/api/v1/jobs/job-1").json()["status"] == "failed")
        job = root.get("/api/v1/jobs/job-1").json()
        assert (job["machines"], job["exit_code"]) == (["rack0-machine0"], 3)
        assert [each["attempt"] for each in job["earlier"]] == [1]
        assert job["started_s"] == job["attempts"][1]["started_s"]
