"""When a running job that can be resized is changed: its restart must pay."""

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot

RESTARTS = 2.0  # that a stop or another size must pay: its own, and as much again for what else it delays


def goes_on(running: Running, view: Snapshot) -> bool:
    """Say whether a running job is past its start and restart: a decision that undoes itself might never end."""
    return view.now_s - running.started_s > (running.submitted.restart_s if running.attained_gpu_s else 0.0)
