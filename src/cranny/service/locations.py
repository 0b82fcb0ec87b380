"""Where processes of jobs are: on the host, and under the folder, of the service that launched them.

A log can be opened elsewhere, by a standby or by mistake. What was launched from another location cannot be seen
there, and may still run.
"""

import hashlib
import os
import socket
from pathlib import Path
from typing import NamedTuple

MACHINE_ID = Path("/etc/machine-id")


class Location(NamedTuple):
    """A host and a folder on it."""

    host: str  # an id that survives restarts
    name: str  # of the host, for people
    folder: str

    @property
    def id(self) -> str:
        """A short id of both."""
        return hashlib.sha256(f"{self.host}\0{self.folder}".encode()).hexdigest()[:8]

    def describe(self) -> str:
        """Return the location as people name it."""
        return f"host {self.name}, folder {self.folder}"

    @classmethod
    def here(cls, folder: Path, host_id: str | None = None) -> "Location":
        """Return the location of a service on this host, which is known by `host_id` if that is given."""
        name = socket.gethostname()
        if host_id is None:
            try:
                host_id = f"{MACHINE_ID.read_text(encoding='ascii').strip()} {name}"
            except (OSError, UnicodeDecodeError):
                host_id = name
        return cls(hashlib.sha256(host_id.encode()).hexdigest()[:16], name, str(folder.absolute()))

    def attempt_folder(self, log_id: str, job_id: str, attempt: int) -> Path:
        """Return the folder of an attempt; it contains the log id, since every event log has a job-1."""
        return Path(self.folder) / "jobs" / log_id / job_id / f"attempt-{attempt}"

    def reaches(self, other: "Location | None", log_id: str, job_id: str, attempt: int) -> Path | None:
        """Return the folder of an attempt that was launched at a location; None if it cannot be seen from here.

        Logs older than locations do not say where; there was only one then.
        """
        own = self.attempt_folder(log_id, job_id, attempt)
        if other is None or other.folder == self.folder:
            return own if other is None or other.host == self.host else None
        if other.host != self.host:
            return None
        theirs = other.attempt_folder(log_id, job_id, attempt)
        if os.access(theirs.parents[1], os.R_OK | os.X_OK):
            return theirs
        return own if own.is_dir() else None  # the folder was moved
