"""Recommending only: the service notes what it would do and what that would have saved, and starts nothing."""

import pytest
from tests.service.conftest import Serve, Start

from cranny.model.errors import CrannyError


def test_it_recommends_and_counts_what_was_lost(serve: Serve) -> None:
    site = serve(recommend=True)
    with site.client("root") as root:
        spec = {"command": ["true"], "gpus": 4, "model": "vgg16"}
        job = root.post("/api/v1/jobs", json=spec).json()
        assert job["status"] == "waiting"
        told = root.get("/api/v1/recommendations").json()
        assert told["recommendations"][0]["placement"]["names"] == ["rack0-machine0"] * 4
        assert "1 machine" in told["recommendations"][0]["text"]
        # Somebody else spreads it over two racks.
        where = ["rack0-machine0", "rack0-machine0", "rack1-machine0", "rack1-machine0"]
        seen = root.post("/api/v1/jobs/job-1/observed", json={"machines": where}).json()
        assert (seen["status"], seen["machines"]) == ("running", ["rack0-machine0", "rack1-machine0"])
        saved = root.get("/api/v1/recommendations").json()["saved"]
        assert (saved["jobs"], saved["machines"], saved["idle_machines"]) == (1, 1, 1)
        assert saved["cross_bytes"] > 0
        assert saved["wait_s"] >= 0
        root.post("/api/v1/jobs", json={**spec, "gpus": 13})
        assert len(root.get("/api/v1/recommendations").json()["recommendations"]) == 1
        assert root.post("/api/v1/jobs/job-1/cancel").status_code == 409
        assert root.post("/api/v1/jobs/job-1/observed", json={"ended": True}).json()["status"] == "done"
        assert len(root.get("/api/v1/recommendations").json()["recommendations"]) == 2
        assert root.post("/api/v1/jobs/job-2/observed", json={"machines": ["nowhere"]}).status_code == 404
        assert root.post("/api/v1/jobs/job-2/observed", json={"machines": [0]}).status_code == 422
        assert root.post("/api/v1/jobs/job-2/observed", json={"machines": [0] * 13}).status_code == 409
    assert site.running.world.processes == {}


def test_a_log_of_recommendations_is_not_for_running(start: Start) -> None:
    start(recommend=True).service.close()
    with pytest.raises(CrannyError, match="in the mode 'recommend'"):
        start()
