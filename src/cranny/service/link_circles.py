"""The circles of a job and of those it shares links with, as they are turned now."""

from typing import Any

from cranny.core.snapshot import Snapshot
from cranny.network.interleave.affinity import SharedLink, shared_links
from cranny.network.interleave.demand import circles
from cranny.network.interleave.demand_curve import curve
from cranny.network.interleave.unified_circle import unify

MAX_LINKS = 8


def shared_circles(job_id: str, view: Snapshot) -> list[Any]:
    """Show each link that a job shares: every job's circle there, its shift, and the score; the fullest first."""
    mine = view.running[job_id].communication.link_gbps.keys()
    met = {
        each: running for each, running in view.running.items() if mine & running.communication.link_gbps.keys()
    }
    found = {
        each: circles(
            *(view.cluster, running.job, running.placement.machines, running.placement.server),
            aggregate=running.placement.aggregate,
        )
        for each, running in met.items()
    }
    links = shared_links(found, view.cluster.uplink_gbps, view.cluster.node_names)
    shared = sorted((link for link in links if job_id in link.circles), key=lambda link: -link.load)
    return [_shown(link, {each: met[each].shift_s for each in link.circles}) for link in shared[:MAX_LINKS]]


def _shown(link: SharedLink, shifts_s: dict[str, float]) -> Any:
    """Show one link with its unified circle."""
    drawn = tuple(link.circles.values())
    unified = unify(tuple(circle.iteration_s for circle in drawn))
    whole = curve(drawn, list(shifts_s.values()), unified)
    rings = [
        {
            "job": job,
            "iteration_s": period_s,
            "shift_s": shifts_s[job],
            "arcs": [list(arc) for arc in circle.stretched(period_s).arcs],
        }
        for (job, circle), period_s in zip(link.circles.items(), unified.periods_s, strict=True)
    ]
    named = {"name": f"uplink of {link.name}", "gbps": link.gbps}
    return {**named, "perimeter_s": unified.perimeter_s, "score": whole.score(link.gbps), "jobs": rings}
