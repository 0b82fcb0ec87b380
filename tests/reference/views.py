"""All that can be seen of a cluster, to compare two moments."""

from cranny.core.snapshot import Snapshot


def seen(view: Snapshot) -> tuple[object, ...]:
    """Return everything that a snapshot shows, as plain values."""
    machines, nodes = range(len(view.cluster.machines)), range(len(view.cluster.parent))
    return (
        view.version,
        view.machines,
        view.free.tolist(),
        [view.slots_on(machine) for machine in machines],
        [view.is_idle(machine) for machine in machines],
        [view.is_up(machine) for machine in machines],
        [view.link_use_gbps(link) for link in nodes],
        list(view.running.items()),
    )
