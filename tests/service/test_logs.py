"""What ranks write: read in parts, while they write, and never a way to other files."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.service.conftest import Serve, Start

from cranny.service.logs import read_log

JOBS = "/api/v1/jobs"


@pytest.mark.parametrize(
    "path", ["..", "..%2f..%2fetc%2fpasswd", "job-1%2f..%2fjob-1", "%00", "job-01", "JOB-1", "1"]
)
def test_paths_lead_nowhere_else(serve: Serve, path: str) -> None:
    site = serve()
    site.running.submit()
    with site.client("root") as root:
        assert root.get(f"{JOBS}/{path}/logs").status_code == 404
        for wrong in ({"rank": "../0"}, {"rank": -1}, {"attempt": "../1"}, {"attempt": 0}, {"limit": 1 << 40}):
            assert root.get(f"{JOBS}/job-1/logs", params=wrong).status_code == 422
        for wrong in ({"rank": 1}, {"attempt": 2}):
            assert root.get(f"{JOBS}/job-1/logs", params=wrong).status_code == 404


def test_a_log_is_read_while_it_is_written_and_its_secrets_are_covered(serve: Serve) -> None:
    site = serve(real=True)
    command = 'echo "rank $RANK says $MY_TOKEN ü"; sleep 0.3; echo bye'
    with site.client("ann") as ann:
        body = {"command": command, "shell": True, "gpus": 2, "env": {"MY_TOKEN": "hunter22"}}
        assert ann.post(JOBS, json=body).status_code == 201
        site.running.until("job-1", "running")
        parts: list[dict[str, Any]] = [{"text": "", "next_offset": 0, "ended": False}]
        while not parts[-1]["ended"]:
            given = {"rank": 1, "offset": parts[-1]["next_offset"]}
            parts.append(ann.get(f"{JOBS}/job-1/logs", params=given).json())
        assert "".join(part["text"] for part in parts) == "rank 1 says ******** ü\nbye\n"
        assert parts[-1]["next_offset"] == 28
        whole = ann.get(f"{JOBS}/job-1/logs", params={"rank": 1}).json()
        assert whole["text"] == "rank 1 says ******** ü\nbye\n"
        # In parts of any size, the same comes out, and no part shows a piece of the secret.
        for limit in (4, 5, 7, 13):
            text, offset = "", 0
            while True:
                part = ann.get(f"{JOBS}/job-1/logs", params={"offset": offset, "limit": limit}).json()
                if part["next_offset"] == offset:
                    break
                text, offset = text + part["text"], part["next_offset"]
            assert text == "rank 0 says ******** ü\nbye\n"
        tail = ann.get(f"{JOBS}/job-1/logs", params={"offset": -4}).json()
        assert tail["text"] == "bye\n"


def test_of_a_log_whose_beginning_was_deleted_no_end_of_a_secret_is_shown(
    serve: Serve, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serve()
    site.running.submit(env={"MY_TOKEN": "hunter22"})
    site.running.until("job-1", "running")
    folder = site.running.service.log_folder("job-1", 1)
    folder.mkdir(parents=True)
    (folder / "rank-0.96.log").write_text("ter22 and the rest of a line\nis hunter22 kept?\n")
    (folder / "rank-0.143.log").write_text("yes\n")
    with site.client("ann") as ann:
        for offset in (0, 50, 96, -1000):
            part = ann.get(f"{JOBS}/job-1/logs", params={"offset": offset}).json()
            assert part["text"] == "is ******** kept?\nyes\n"
            assert (part["offset"], part["next_offset"]) == (125, 147)
        assert ann.get(f"{JOBS}/job-1/logs", params={"offset": 143}).json()["text"] == "yes\n"
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["ann"])
    shown = run("logs", "job-1", "--server", site.url)
    assert shown.out == "is ******** kept?\nyes\n"
    assert "job-1: 125 bytes are not kept: the log is limited (--log-limit-mb)" in shown.err


def test_a_link_in_the_place_of_a_log_is_not_followed(serve: Serve, tmp_path: Path) -> None:
    site = serve()
    site.running.submit()
    site.running.until("job-1", "running")
    secret = tmp_path / "secret"
    secret.write_text("nobody may read this")
    folder = site.running.service.log_folder("job-1", 1)
    folder.mkdir(parents=True)
    (folder / "rank-0.log").symlink_to(secret)
    with site.client("root") as root:
        assert root.get(f"{JOBS}/job-1/logs").json()["text"] == ""
        (folder / "rank-0.log").unlink()
        os.mkfifo(folder / "rank-0.log")
        assert root.get(f"{JOBS}/job-1/logs").json()["text"] == ""


def test_another_database_in_the_same_folder_has_its_own_logs(start: Start, tmp_path: Path) -> None:
    for number, word in enumerate(("first", "second")):
        running = start(real=True, database=str(tmp_path / f"{number}.db"))
        job_id = running.submit(command=["echo", word])
        assert job_id == "job-1"
        running.until(job_id, "done", "failed")
        assert running.status(job_id) == "done"
        assert read_log(running.service, job_id, 0)["text"] == f"{word}\n"
        running.service.close()
