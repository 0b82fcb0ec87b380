"""The same facts as two versions of Slurm write them are read as the same values."""

from typing import Any

import pytest

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_commands import SlurmCommands, SlurmDownError
from cranny.backends.slurm.slurm_jobs import read_jobs
from cranny.backends.slurm.slurm_nodes import read_nodes
from cranny.backends.slurm.slurm_values import GpuRequest, gpu_request, number
from cranny.channel.placed_comment import PlacedComment, folded_ranks, ranks_of


def is_set(value: float) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


UNSET = {"set": False, "infinite": False, "number": 0}
ENDLESS = {"set": True, "infinite": True, "number": 0}

JOB_22: dict[str, Any] = {
    "job_id": 7,
    "name": "train",
    "user_name": "ada",
    "account": "lab",
    "partition": "main",
    "job_state": "RUNNING",
    "state_reason": "None",
    "priority": 4294901757,
    "submit_time": 100,
    "eligible_time": 100,
    "start_time": 160,
    "time_limit": 10,
    "nodes": "node[2-3]",
    "gres_detail": ["gpu:h100:2(IDX:0-1)", "gpu:h100:2(IDX:4,6)"],
    "job_resources": {
        "nodes": "node[2-3]",
        "allocated_nodes": [
            {
                "nodename": name,
                "memory_allocated": 400,
                "sockets": {
                    "0": {"cores": {"0": "allocated", "1": "allocated"}},
                    "1": {"cores": {"0": "allocated"}},
                },
            }
            for name in ("node2", "node3")
        ],
    },
    "comment": "cranny model=vgg16",
    "admin_comment": "cranny ranks=node2,node3",
    "required_nodes": "node[2-3]",
    "excluded_nodes": "",
    "features": "row1",
    "tres_per_node": "gres:gpu:h100:2",
    "tres_per_task": "",
    "tres_per_job": None,
    "tasks": 4,
    "tasks_per_node": 2,
    "node_count": 2,
    "max_nodes": 2,
    "cpus": 6,
    "memory_per_cpu": 100,
    "memory_per_node": None,
    "memory_per_tres": "gres:gpu:100",
    "resv_name": "",
    "dependency": "",
    "array_job_id": 0,
    "het_job_id": 0,
    "requeue": True,
    "restart_cnt": 1,
    "exit_code": 0,
}
JOB_24: dict[str, Any] = {
    **JOB_22,
    "job_state": ["RUNNING"],
    "priority": is_set(4294901757),
    "submit_time": is_set(100),
    "eligible_time": is_set(100),
    "start_time": is_set(160),
    "time_limit": is_set(10),
    "job_resources": {
        "nodes": {
            "list": "node[2-3]",
            "allocation": [
                {
                    "name": name,
                    "cpus": {"count": 3, "used": 0},
                    "memory": {"allocated": 400, "used": 0},
                    "sockets": [],
                }
                for name in ("node2", "node3")
            ],
        }
    },
    "tres_per_node": "gres/gpu:h100:2",
    "tasks": is_set(4),
    "tasks_per_node": is_set(2),
    "node_count": is_set(2),
    "max_nodes": is_set(2),
    "cpus": is_set(6),
    "memory_per_cpu": is_set(100),
    "memory_per_node": UNSET,
    "memory_per_tres": "gres/gpu:100",
    "array_job_id": is_set(0),
    "array_task_id": UNSET,
    "array_task_string": "",
    "array_max_tasks": is_set(0),
    "het_job_id": is_set(0),
    "exit_code": {"status": ["SUCCESS"], "return_code": is_set(0), "signal": {"id": UNSET, "name": ""}},
}


JOB_23: dict[str, Any] = {  # 23.02 (data_parser/v0.0.39): counts are objects, but times are numbers
    **JOB_24,
    "job_state": "RUNNING",
    **{name: JOB_22[name] for name in ("submit_time", "eligible_time", "start_time", "job_resources")},
    "tres_per_node": "gres:gpu:h100:2",
    "exit_code": is_set(0),
}


def test_a_job_is_the_same_in_all_versions() -> None:
    (old,), (middle,), (new,) = (read_jobs({"jobs": [each]}).values() for each in (JOB_22, JOB_23, JOB_24))
    assert old == middle == new
    assert old.gpus == {"node2": 2, "node3": 2}
    assert old.indices == {"node2": (0, 1), "node3": (4, 6)}
    assert old.resources["node3"] == {"cpus": 3, "memory_mb": 400}
    assert (old.ends_s, old.running, old.over) == (760.0, True, False)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (768, {"return_code": is_set(3), "signal": {"id": UNSET}}, 3),
        (9, {"return_code": UNSET, "signal": {"id": is_set(9), "name": "SIGKILL"}}, -9),
        (15, {"return_code": is_set(0), "signal": {"signal_id": 15, "name": "SIGTERM"}}, -15),
    ],
)
def test_exit_codes(old: int, new: dict[str, Any], code: int) -> None:
    for each in (old, new):
        ((job),) = read_jobs({"jobs": [{**JOB_22, "exit_code": each}]}).values()
        assert job.exit_code == code


def test_states_with_flags() -> None:
    for state in ("COMPLETING", ["FAILED", "COMPLETING"]):
        (job,) = read_jobs({"jobs": [{**JOB_22, "job_state": state}]}).values()
        assert (job.running, job.over, job.pending) == (True, False, False)
    (job,) = read_jobs(
        {"jobs": [{**JOB_24, "job_state": ["PENDING", "REQUEUED"], "time_limit": ENDLESS}]}
    ).values()
    assert (job.pending, job.time_limit_s) == (True, None)


def test_a_node_is_the_same_in_both_versions() -> None:
    old = {
        "name": "n1",
        "gres": "gpu:h100:8(S:0-1)",
        "gres_drained": "N/A",
        "cpus": 96,
        "real_memory": 1000,
        "state": "mixed",
        "state_flags": ["DRAIN"],
        "features": "a,b",
        "active_features": "a,b",
        "partitions": ["main"],
        "address": "n1",
        "reason": "disk",
    }
    new = {**old, "state": ["MIXED", "DRAIN"], "features": ["a", "b"], "active_features": ["a", "b"]}
    del new["state_flags"]
    assert read_nodes({"nodes": [old]}) == read_nodes({"nodes": [new]})
    (node,) = read_nodes({"nodes": [new]}).values()
    assert (node.unavailable, node.failed) == ("drain in Slurm: disk", "")
    assert not read_nodes({"nodes": [{**old, "gres": ""}, {**old, "state": ["FUTURE"]}]})
    with pytest.raises(BackendError, match="lists no nodes"):
        read_nodes({"sinfo": []})


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            {"state": "mixed", "slurmd_start_time": 0},
            "not registered in Slurm yet",
        ),  # after a restart of slurmctld
        ({"state": ["MIXED"], "slurmd_start_time": {"set": False, "number": 0}}, "not registered in Slurm yet"),
        ({"state": ["MIXED"], "slurmd_start_time": {"set": True, "number": 1794965911}}, ""),
        ({"state": ["IDLE", "POWERED_DOWN"], "slurmd_start_time": 0}, ""),  # Slurm starts it for a job
        ({"state": "idle"}, ""),
    ],
)
def test_a_node_that_has_not_registered_takes_no_jobs(said: dict[str, Any], why: str) -> None:
    (node,) = read_nodes({"nodes": [{"name": "n1", "gres": "gpu:h100:8", **said}]}).values()
    assert node.unavailable == why


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gres:gpu:2", GpuRequest(2)),
        ("gres/gpu:h100:2", GpuRequest(2, "h100")),
        ("gres/gpu:h100=4,gres/nic=1", GpuRequest(4, "h100")),
        ("gres:gpu:a100:1,gres:gpu:h100:2", GpuRequest(3, "a100")),
        ("gpu", GpuRequest(1)),
        ("gres:gpumem:5", None),
        ("", None),
    ],
)
def test_requests_for_gpus(text: str, found: GpuRequest | None) -> None:
    assert gpu_request(text) == found


def test_numbers_that_are_not_set() -> None:
    assert [number(each) for each in (None, UNSET, ENDLESS, 0xFFFFFFFE, True, "x")] == [None] * 6
    assert [number(each) for each in (5, "5", is_set(5))] == [5.0] * 3


def test_an_answer_with_errors_is_no_empty_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As squeue of 22.05 gives it, with exit code 0, while slurmctld is down."""
    said = (
        '{"errors": [{"description": "Failed while looking for jobs", "error": "Unspecified error"}], "jobs": []}'
    )
    monkeypatch.setattr(SlurmCommands, "call", lambda *_: said)
    with pytest.raises(SlurmDownError, match="squeue: Slurm does not answer: Failed while looking for jobs"):
        SlurmCommands().json("squeue")


def test_comments_are_read_as_they_were_written() -> None:
    comment = PlacedComment("job-7", "ab12", "10.0.0.3", ("n1", "n1", "n2"), 0.0, "fills the gap | of n2\nand n1")
    assert comment.write().startswith("cranny job=job-7 launch=ab12 master=10.0.0.3 ranks=n1*2,n2 | fills")
    assert PlacedComment.read(comment.write()) == comment._replace(text="fills the gap | of n2 and n1")
    assert PlacedComment.read("cranny") == PlacedComment()
    assert PlacedComment.read("crannying") is None
    assert ranks_of(folded_ranks(["a", "b", "b"])) == ("a", "b", "b")
    assert ranks_of("a*b") == ()


def test_what_versions_leave_out() -> None:
    """24.11 has a limit that is infinite and not set, and 25.05 no list of nodes in job_resources."""
    endless = {"set": False, "infinite": True, "number": 0}
    entry = {
        **JOB_24,
        "time_limit": endless,
        "job_resources": {"allocated_nodes": None},
        "array_task_id": is_set(0),
    }
    (job,) = read_jobs({"jobs": [{**entry, "array_job_id": is_set(9)}]}).values()
    assert job.time_limit_s is None
    assert job.resources == {"node2": {"cpus": 3, "memory_mb": 0}, "node3": {"cpus": 3, "memory_mb": 0}}
    assert job.address == "9_0"  # the first task of an array
