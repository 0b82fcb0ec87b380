"""What the manager of a cluster says, folded from the event log: availability, foreign jobs, reservations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cranny.backends.cluster_reading import ForeignJob, Reservation
from cranny.model.cluster import Cluster, mask_of
from cranny.service.job_record import JobRecord

FOREIGN = "foreign:"  # begins the ids of jobs in the state that the manager did not get from here


LEFT = "is no longer in the cluster"
SHRUNK = "has fewer GPUs than its jobs were given"


def availability(
    kept: Cluster, there: Cluster, unavailable: Mapping[str, str], failed: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return why machines take no jobs: as the manager says, and those that are kept only for the jobs on them."""
    sizes = {machine.name: machine.gpus for machine in there.machines}
    out = {"unavailable": dict(unavailable), "failed": dict(failed)}
    for machine in kept.machines:
        if machine.name not in sizes:
            out["failed"][machine.name] = LEFT
        elif machine.gpus > sizes[machine.name]:
            out["unavailable"][machine.name] = SHRUNK
    names = {machine.name for machine in kept.machines}
    return {kind: {name: why for name, why in sorted(own.items()) if name in names} for kind, own in out.items()}


class ManagedCluster:
    """What the manager said last, as far as that is not in the cluster itself."""

    def __init__(self) -> None:
        self.unavailable: dict[str, str] = {}  # machine -> why it takes no new jobs
        self.failed: dict[str, str] = {}  # machine -> why nothing runs there any more
        self.foreign: dict[str, ForeignJob] = {}  # by the manager's id
        self.reservations: tuple[Reservation, ...] = ()
        self.drained_away: set[str] = set()  # machines that were drained here, and are not there now
        self.now_s = 0.0  # of the present decision, by which reservations begin and end

    @property
    def out_of_service(self) -> dict[str, dict[str, str]]:
        """Why machines take no jobs."""
        return {"unavailable": self.unavailable, "failed": self.failed}

    @property
    def said(self) -> dict[str, dict[str, str]]:
        """Why machines take no jobs, without those that are kept only for the jobs on them."""
        return {
            kind: {name: why for name, why in own.items() if why not in (LEFT, SHRUNK)}
            for kind, own in self.out_of_service.items()
        }

    def is_down(self, name: str) -> bool:
        """Say whether a machine takes no jobs, whatever operators of this service say."""
        return name in self.unavailable or name in self.failed

    def reserved_from(self, record: JobRecord, cluster: Cluster) -> int:
        """Return the machines that reservations keep from a job now, as a set."""
        wanted, limit_s = record.spec.constraints.reservation, record.spec.time_limit_s
        every = (1 << len(cluster.machines)) - 1
        if wanted is not None and not any(each.name == wanted for each in self.reservations):
            return every
        kept = 0
        for each in self.reservations:
            if each.end_s <= self.now_s and each.name != wanted:
                continue
            own = mask_of(number for number, m in enumerate(cluster.machines) if m.name in each.machines)
            if each.name != wanted:
                ends_before = limit_s is not None and self.now_s + limit_s <= each.start_s
                kept |= 0 if ends_before else own
            elif each.start_s <= self.now_s < each.end_s:
                kept |= every & ~own
            else:
                kept |= every
        return kept

    def values(self) -> dict[str, Any]:
        """Return everything as values of JSON."""
        return {
            "unavailable": self.unavailable,
            "failed": self.failed,
            "foreign": foreign_values(self.foreign.values()),
            "reservations": reservation_values(self.reservations),
            "drained_away": sorted(self.drained_away),
        }

    def fill(self, values: dict[str, Any]) -> None:
        """Take over what `values` returned."""
        self.unavailable, self.failed = dict(values["unavailable"]), dict(values["failed"])
        self.foreign = {each.id: each for each in map(foreign_of, values["foreign"])}
        self.reservations = tuple(map(reservation_of, values["reservations"]))
        self.drained_away = set(values["drained_away"])


def foreign_values(jobs: Iterable[ForeignJob]) -> list[list[Any]]:
    """Return jobs of others as values of JSON."""
    return [
        [
            each.id,
            each.user,
            dict(each.gpus),
            {name: dict(own) for name, own in each.resources.items()},
            each.ends_s,
        ]
        for each in jobs
    ]


def foreign_of(values: Sequence[Any]) -> ForeignJob:
    """Return the job of others that values describe."""
    return ForeignJob(*values)


def reservation_values(reservations: Iterable[Reservation]) -> list[list[Any]]:
    """Return reservations as values of JSON."""
    return [
        [each.name, sorted(each.machines), each.start_s, each.end_s, sorted(each.users), sorted(each.accounts)]
        for each in reservations
    ]


def reservation_of(values: Sequence[Any]) -> Reservation:
    """Return the reservation that values describe."""
    name, machines, start_s, end_s, users, accounts = values
    return Reservation(name, frozenset(machines), start_s, end_s, frozenset(users), frozenset(accounts))
