"""Made-up measurements of a job that was resized, is paced, and runs on GPUs of two types."""

from typing import Any, Protocol

NOTHING: dict[str, Any] = {
    "points": [],
    "ranks": [],
    "resumed": [],
    "restarts": [],
    "types": [],
    "control": None,
    "profile": None,
    "bad_reports": 0,
    "bad_reason": "",
}
ASKED_S = 0.255


class Clocked(Protocol):
    """What knows the time."""

    now_s: float


def point(at_s: float, step: int, attempt: int = 2, **more: Any) -> dict[str, Any]:
    """Return ten iterations of rank 0."""
    plain = {"iteration_s": 0.3, "waited_s": 0.0, "compute_s": 0.2, "comm_s": 0.15}
    kept = {"samples": 32.0, "paced": False, "period_s": 0.0}
    return {"at_s": at_s, "attempt": attempt, "rank": 0, "step": step, "iterations": 10, **plain, **kept, **more}


def fake_measurements(fake: Clocked, job: dict[str, Any]) -> dict[str, Any]:
    """Return measurements of a job that runs on several machines; others report nothing."""
    if job["status"] != "running" or len(job["machines"]) < 2:
        return {"job": job["id"], **NOTHING}
    since = fake.now_s - 300.0
    paced: dict[str, Any] = {
        "paced": True,
        "period_s": ASKED_S,
        "iteration_s": ASKED_S,
        "waited_s": 0.02,
        "comm_s": 0.06,
    }
    points = [point(since + 3.0 * at, 10 * at, attempt=1) for at in range(1, 21)]
    points += [point(since + 75 + 3.0 * at, 180 + 10 * at, iteration_s=0.28) for at in range(1, 21)]
    points += [point(since + 140 + 2.6 * at, 380 + 10 * at, **paced) for at in range(1, 41)]
    return {
        "job": job["id"],
        "points": points,
        "ranks": [
            {"rank": 0, "step": 780, "saved": {"step": 700, "at_s": since + 200, "took_s": 1.5, "request": 0}}
        ],
        "resumed": [{"attempt": 2, "step": 180, "took_s": 4.2, "lost_steps": 20}],
        "restarts": [
            {
                "attempt": 2,
                "reason": "resized",
                "gpus_before": 8,
                "gpus": job["gpus"],
                "step": 180,
                "took_s": 4.2,
                "lost_steps": 20,
                "cost_s": 10.2,
                "iteration_before_s": 0.3,
                "iteration_s": 0.26,
                "gained_s": 24.0,
            }
        ],
        "types": [
            {"gpu_type": "T4", "ranks": 4, "share": 1 / 3, "samples_per_s": 110.0},
            {"gpu_type": "V100", "ranks": 4, "share": 2 / 3, "samples_per_s": 220.0},
        ],
        "control": {
            "number": 9,
            "pace": {"period_s": ASKED_S, "shift_s": 0.046, "epoch_s": 0.0},
            "shares": None,
            "aggregate": None,
            "checkpoint": None,
        },
        "profile": {
            "rates": {"T4": 110.0, "V100": 220.0},
            "batch": 256.0,
            "comm_start": 0.55,
            "gradient_bytes": 1e8,
            "restart_s": 10.2,
        },
        "bad_reports": 2,
        "bad_reason": "more iterations than steps, or steps that go back",
    }
