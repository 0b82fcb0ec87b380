"""Jobs that report for themselves which GPU they have, and whether another job has it."""

from pathlib import Path
from typing import Any

# The lock goes to all children of the rank and is gone when the last of them is, however they end.
SCRIPT = """
exec 9>>"$REPORTS/slot-$CRANNY_MACHINE-$CRANNY_GPU"
flock -n 9 || echo "$CRANNY_JOB_ID $RANK" >> "$REPORTS/conflicts"
echo "$CRANNY_JOB_ID $CRANNY_ATTEMPT $RANK" >> "$REPORTS/started"
sleep {sleep_s}
[ "$RANK" = 0 ] && [ {code} = 0 ] && echo "$CRANNY_JOB_ID" >> "$REPORTS/finished"
exit {code}
"""


def reporting(folder: Path, gpus: int, sleep_s: float = 0.05, code: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a job whose ranks report to files in a folder."""
    folder.mkdir(exist_ok=True)
    command = SCRIPT.format(sleep_s=sleep_s, code=code)
    return {"command": command, "shell": True, "gpus": gpus, "env": {"REPORTS": str(folder)}, **spec}


def lines(path: Path) -> list[str]:
    """Return the lines of a report; none if it was not written."""
    return path.read_text().splitlines() if path.exists() else []


def left_over(folder: Path) -> list[str]:
    """Return the processes that still belong to jobs of a folder."""
    mark = f"REPORTS={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:  # it has ended, or is not ours
            continue
    return found
