"""A running job as it stands now: which links it shares and with which jobs, and what its ranks keep to.

The reasons of its placement are of the moment when it was placed, and say so; its neighbours have changed since.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cranny.core.snapshot import Snapshot
from cranny.model.validate import counted
from cranny.service.controls import shares
from cranny.service.explain import Explanation, explain_placement
from cranny.service.job_record import HELD, JobRecord

MOST_LINKS = 3  # that are named, the most loaded first
MOST_JOBS = 3


class LinkNow(NamedTuple):
    """A link that a running job shares."""

    name: str
    jobs: list[str]  # the others
    load: float  # mean rate of all over the capacity


def explain_running(record: JobRecord, view: Snapshot, left: Sequence[str] = ()) -> Explanation:
    """Explain a job that is placed, or was; of a running one also how it stands now, and what is left of it."""
    found = explain_placement(record)
    if left:
        lines = [f"its GPUs stay held until they have ended: {', '.join(left)}", *found.evidence]
        return replace(found, reason="processes of it are left", evidence=lines)
    attempt = record.attempt
    if record.status not in HELD or attempt is None or record.id not in view.running:
        return found
    links = shared_now(record.id, view)
    lines = [_link_line(link) for link in links[:MOST_LINKS]] or ["now shares no link with another job"]
    pace = attempt.pace
    if pace is not None:
        lines.append(
            f"its iterations start every {pace.period_s * 1e3:.1f} ms, shifted by {pace.shift_s * 1e3:.1f} ms"
        )
    if (parts := shares(record, attempt, view.cluster)) is not None:
        lines.append(
            f"ranks get from {min(parts):.1%} to {max(parts):.1%} of the samples, by the speed of their GPUs"
        )
    now: dict[str, Any] = {
        "links": [link._asdict() for link in links],
        "period_s": None if pace is None else pace.period_s,
        "shift_s": None if pace is None else pace.shift_s,
    }
    return replace(found, evidence=[*lines, *found.evidence], facts={**found.facts, "now": now})


def shared_now(job_id: str, view: Snapshot) -> list[LinkNow]:
    """Return the links that a running job shares with others, the most loaded first."""
    mine = view.running[job_id].communication.link_gbps
    shared = {link: list[str]() for link in mine if view.link_users(link) > 1}
    for other, running in view.running.items() if shared else ():
        for link in running.communication.link_gbps.keys() & shared.keys():
            if other != job_id:
                shared[link].append(other)
    cluster = view.cluster
    found = [
        LinkNow(cluster.node_names[link], jobs, view.link_use_gbps(link) / cluster.uplink_gbps[link])
        for link, jobs in shared.items()
    ]
    return sorted(found, key=lambda link: -link.load)


def _link_line(link: LinkNow) -> str:
    some, more = link.jobs[:MOST_JOBS], len(link.jobs) - MOST_JOBS
    named = ", ".join(some) + (f" and {counted(more, 'other job')}" if more > 0 else "")
    return f"now shares the uplink of {link.name} with {named}: all together use {link.load:.0%} of it"
