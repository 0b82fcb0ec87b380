"""What each week would have been like under the policy: the reports of a service that only recommends.

The jobs of the week, as they were observed, become a log; another process replays it with `cranny what-if`, at the
lowest priority, and writes a page.
"""

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cranny.model.cluster import Cluster
from cranny.model.cluster_yaml import cluster_yaml
from cranny.model.errors import CrannyError
from cranny.service.background_thread import BackgroundThread
from cranny.service.job_log import logged_jobs
from cranny.service.store import EventStore

LOOK_S = 600.0  # how often to look whether a week is over
NICENESS = 19  # of the process that replays
LONGEST_S = 3600.0  # that a report may take
WARM_UP_S = 7 * 86_400.0  # of the weeks before, whose jobs may still run

_log = logging.getLogger("cranny.service")


class Week(NamedTuple):
    """A week from Monday to Monday, UTC."""

    begin: datetime

    @classmethod
    def before(cls, now_s: float) -> "Week":
        """Return the last week that is over."""
        today = datetime.fromtimestamp(now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return cls(today - timedelta(days=today.weekday() + 7))

    @property
    def end(self) -> datetime:
        """When it is over."""
        return self.begin + timedelta(days=7)

    @property
    def name(self) -> str:
        """Its number, as calendars have it."""
        return f"{self.begin:%G-W%V}"


class WeeklyReports(BackgroundThread):
    """Writes `reports/2026-W47.html` and `.json` in the folder of a service when a week is over."""

    def __init__(
        self,
        store: EventStore,
        folder: Path,
        policy: Callable[[], str],
        now_s: Callable[[], float],
        cluster: Cluster | None = None,
    ) -> None:
        """Take the cluster of the log from `cluster` if the events that say it were archived."""
        super().__init__("cranny-weekly-report")
        self._store, self._folder, self._policy, self._now_s = store, folder / "reports", policy, now_s
        self._cluster = cluster

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.look()
            except (CrannyError, OSError, ValueError, subprocess.SubprocessError) as error:
                _log.error("the weekly report cannot be made: %s", " ".join(str(error).split()))
            self._ended.wait(LOOK_S)

    def look(self) -> Path | None:
        """Write the report of the last week if it is over and has none yet; return the page."""
        week = Week.before(self._now_s())
        page = self._folder / f"{week.name}.html"
        if page.exists() or (self._folder / f"{week.name}.none").exists():
            return None
        events, since_s = (event.parsed() for event in self._store.stored()), week.begin.timestamp() - WARM_UP_S
        jobs = logged_jobs(events, since_s, self._cluster)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="cranny-") as own:
            log, cluster = Path(own) / "jobs.txt", Path(own) / "cluster.yaml"
            log.write_text(jobs.text, encoding="utf-8")
            cluster.write_text(cluster_yaml(jobs.cluster), encoding="utf-8")
            facts = self._replayed(week, log, cluster, page)
        if facts is None:
            return None
        (self._folder / f"{week.name}.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        _log.warning("week %s: %s; %s", week.name, summary(facts), page)
        return page

    def _replayed(self, week: Week, log: Path, cluster: Path, page: Path) -> dict[str, Any] | None:
        """Let another process replay the week; None if no job ran in it."""
        argv = [
            *("nice", "-n", str(NICENESS), sys.executable, "-m", "cranny.cli", "what-if", str(log)),
            *("--cluster", str(cluster), "--no-search"),
            *("--policies", self._policy(), "--processes", "1", "--report", str(page), "--json"),
            *("--from", f"{week.begin:%Y-%m-%dT%H:%M:%SZ}", "--to", f"{week.end:%Y-%m-%dT%H:%M:%SZ}"),
        ]
        ran = subprocess.run(  # noqa: S603 - no shell, and all words are ours
            argv, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        if ran.returncode:
            said = ran.stderr.strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
            page.with_suffix(".none").write_text(said[0] + "\n", encoding="utf-8")
            _log.warning("week %s: no report: %s", week.name, said[0].removeprefix("cranny: "))
            return None
        facts: dict[str, Any] = json.loads(ran.stdout)
        return facts


def summary(facts: dict[str, Any]) -> str:
    """Return in a line what a policy would have changed."""
    was, would = facts["cases"][0], facts["cases"][-1]
    waits = [case["waits"]["wait"]["mean_s"] for case in (was, would)]
    used = [case["machines"]["used"] for case in (was, would)]
    text = f"{would['name']} would have had mean waits of {waits[1]:,.0f} s instead of {waits[0]:,.0f} s"
    return f"{text} and {used[1]:,.1f} machines in use instead of {used[0]:,.1f}"
