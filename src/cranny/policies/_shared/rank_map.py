"""Titan's map of ranks for the machines that another placer chooses; no paper has these policies.

They separate what Titan gains by its choice of machines and by its map.
"""

from cranny.core.partition import split
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import exchange_graph
from cranny.model.job import Job
from cranny.model.placement import Placement


def mapped(job: Job, view: Snapshot, placement: Placement | None) -> Placement | None:
    """Divide the ranks among the same machines so that little crosses: those that exchange most share one."""
    if placement is None or len(placement.counts) == 1:
        return placement
    machines = [machine for machine, _ in placement.counts.most_common()]  # those with most ranks first
    found = split(exchange_graph(job), tuple(placement.counts[machine] for machine in machines))
    return view.placement(job, tuple([machines[part] for part in found.part]), note=str(placement.facts["note"]))
