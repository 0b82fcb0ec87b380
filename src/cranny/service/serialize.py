"""Jobs, machines, links and traffic as JSON values of the API, with secrets redacted."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from cranny.core.machine_set import members
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import parts, renumber, traffic
from cranny.model.cluster import Cluster
from cranny.model.collective import PLACED
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.interleave.affinity import SharedLink, shared_links
from cranny.network.interleave.demand import circles
from cranny.network.interleave.unified_circle import curve, unify
from cranny.service.explain import Explanation, plain_job_ids
from cranny.service.foreign_jobs import shown_id
from cranny.service.given_gpus import shown_gpus
from cranny.service.job_record import HELD, Attempt, JobRecord, KeptPace
from cranny.service.job_records import JobRecords
from cranny.service.redact import redact_spec

MAX_LINKS = 8  # shared links shown for a job
MAX_RINGS = 24  # jobs on a link whose circles are shown; more could not be distinguished


def job(
    record: JobRecord, view: Snapshot, waits: tuple[str, str], start_s: float | None, end_s: float | None
) -> Any:
    """Return a job as an entry of a list, with its predicted start or expected end."""
    cluster, spec, attempt = view.cluster, record.spec, latest(record)
    placement = record.observed or (attempt.placement if attempt is not None else None)
    return {
        "id": record.id,
        "name": spec.name,
        "user": record.user,
        "queue": spec.queue,
        "status": record.status,
        "gpus": record.job.gpus,
        "model": record.job.profile.name,
        "collective": record.job.collective,
        "tp": spec.tp,
        "pp": spec.pp,
        "priority": spec.priority,
        "submitted_s": record.submitted_s,
        "started_s": attempt.started_s if attempt is not None else record.observed_s,
        "ended_s": record.ended_s,
        "external": record.external,
        "duration_s": spec.duration_s,
        "deadline_s": record.submitted_s + spec.deadline_s if spec.deadline_s is not None else None,
        "attempt": len(record.attempts),
        "retries_left": max(0, spec.max_retries - record.failures),
        "machines": _names(placement.counts, _cluster_of(record, attempt, cluster))
        if placement is not None
        else [],
        "reason": waits[1] if record.status == "waiting" else plain_job_ids(record.reason),
        "reason_kind": waits[0],
        "predicted_start_s": start_s,
        "expected_end_s": end_s,
        "exit_code": attempt.exit_code if attempt is not None else None,
        "earlier": [_attempt(each, cluster) for each in record.attempts if each is not attempt],
    }


def latest(record: JobRecord) -> Attempt | None:
    """Return the attempt that a job runs in or ended with; None if it waits or was cancelled while waiting."""
    attempt = record.attempt
    if attempt is None or record.status == "waiting":
        return None
    return attempt if not record.over or attempt.ended_s == record.ended_s else None


def detail(record: JobRecord, cluster: Cluster, line: Any) -> Any:
    """Return all fields of a job."""
    held = record.status in HELD
    attempt, where = record.attempt, None
    of = _cluster_of(record, attempt, cluster)
    if held and record.observed is not None:
        where = placement(record.observed, of)
    elif held and attempt is not None:
        where = placement(attempt.placement, of, shown_gpus(record, attempt))
    return {
        **line,
        "spec": redact_spec(record.spec.model_dump(exclude_defaults=True)),
        "placement": where,
        "attempts": [_attempt(each, cluster) for each in record.attempts],
        "explanation_text": attempt.why if attempt is not None else "",
    }


def placement(where: Placement, cluster: Cluster, gpus: Iterable[int] = ()) -> Any:
    """Return a placement, with the names of its machines."""
    return {
        "machines": list(where.machines),
        "names": _names(where.machines, cluster),
        "gpus": list(gpus),
        "spare": list(where.spare),
        "server": where.server,
        "aggregate": where.aggregating(cluster.rack_names),
    }


def explanation(record: JobRecord, why: Explanation) -> Any:
    """Return the explanation of a job."""
    return {"job": record.id, "status": record.status, **asdict(why)}


def nodes(view: Snapshot, records: JobRecords, first: int, past: int) -> list[Any]:
    """Return a range of machines, with the jobs that hold their GPUs."""
    slots: dict[int, list[str | None]] = {m: [None] * view.cluster.machines[m].gpus for m in range(first, past)}
    for running in view.running.values():
        for machine, gpus in running.held.items():
            if machine in slots:
                for gpu in members(gpus):
                    slots[machine][gpu] = shown_id(running.job.id)
    cluster = view.cluster
    return [
        {
            "machine": number,
            "name": machine.name,
            "rack": cluster.rack_names[cluster.rack_of[number]],
            "rack_index": cluster.rack_of[number],
            "gpus": machine.gpus,
            "gpu_type": machine.gpu_type,
            "free": view.free_on(number),
            **_state(number, view, records),
            "slots": slots[number],
            "uplink_gbps": cluster.uplink_gbps[number],
            "uplink_use_gbps": view.link_use_gbps(number),
        }
        for number, machine in enumerate(cluster.machines[first:past], first)
    ]


def _state(number: int, view: Snapshot, records: JobRecords) -> dict[str, str]:
    """Return whether a machine takes jobs, and if the manager of the cluster says that it does not, why."""
    name, managed = view.cluster.machines[number].name, records.managed
    why = managed.failed.get(name) or managed.unavailable.get(name, "")
    if view.is_up(number):
        state = "up"
    elif name in managed.failed or not (number in records.drained or name in managed.unavailable):
        state = "failed"
    else:
        state = "drained"
    return {"state": state, "why": why}


def tier_of(cluster: Cluster) -> list[int]:
    """Return the tier of each node, (nodes,): 0 for machines, 1 for racks."""
    tier = [0] * len(cluster.parent)
    for at in range(len(cluster.parent) - 1):  # children come before their parents
        above = cluster.parent[at]
        tier[above] = max(tier[above], tier[at] + 1)
    return tier


def links(view: Snapshot) -> list[Any]:
    """Return the load of all links."""
    cluster = view.cluster
    tier = tier_of(cluster)
    return [
        {
            "link": link,
            "name": cluster.link_name(link),
            "tier": tier[link],
            "node": cluster.node_names[link],
            "gbps": cluster.uplink_gbps[link],
            "use_gbps": view.link_use_gbps(link),
            "jobs": view.link_users(link),
        }
        for link in range(cluster.root)
    ]


def job_traffic(record: JobRecord, view: Snapshot) -> Any:
    """Return the traffic between ranks, and between machines, in one iteration of a job."""
    cluster = view.cluster
    running = view.running[record.id]
    where = running.placement.machines
    moved = traffic(running.job, where)
    pairs: dict[tuple[int, int], float] = {}
    between: dict[tuple[str, ...], float] = {}
    for a, b, count in exchanged(running.job, where):
        pairs[a, b] = pairs.get((a, b), 0.0) + count
        if where[a] != where[b]:
            names = tuple(_names(sorted((where[a], where[b])), cluster))
            between[names] = between.get(names, 0.0) + count
    return {
        "job": record.id,
        "ranks": _names(where, cluster),
        "pairs": [{"a": a, "b": b, "bytes": count} for (a, b), count in pairs.items()],
        "machines": [{"a": a, "b": b, "bytes": count} for (a, b), count in between.items()],
        "cross_machine_bytes": moved.cross_machine_bytes,
        "links": [
            {"link": link, "name": cluster.link_name(link), "gbps": gbps}
            for link, gbps in running.communication.link_gbps.items()
        ],
    }


def exchanged(job: Job, where: Sequence[int]) -> Iterator[tuple[int, int, float]]:
    """Yield two ranks and the bytes that they exchange in one iteration."""
    if job.collective in PLACED:
        return  # its workers exchange data with a server or with switches, not with each other
    for pattern, unit_bytes in parts(job, renumber(where)):
        pairs, shares = pattern.edges
        for (a, b), share in zip(pairs.tolist(), shares.tolist(), strict=True):
            yield a, b, share * unit_bytes


def _cluster_of(record: JobRecord, attempt: Attempt | None, present: Cluster) -> Cluster:
    """Return the cluster whose machines the placement of a job numbers: it may have changed since."""
    if record.observed is not None:
        return record.observed_on or present
    return present if attempt is None else attempt.cluster or present


def _attempt(attempt: Attempt, present: Cluster) -> Any:
    cluster = attempt.cluster or present
    return {
        "attempt": attempt.number,
        "placed_s": attempt.placed_s,
        "started_s": attempt.started_s,
        "ended_s": attempt.ended_s,
        "outcome": attempt.outcome,
        "exit_code": attempt.exit_code,
        "machines": _names(attempt.placement.counts, cluster),
        "gpus": len(attempt.placement.machines),
        "resumed": None if attempt.resumed is None else attempt.resumed._asdict(),
    }


def _names(machines: Iterable[int], cluster: Cluster) -> list[str]:
    """Return names of machines; of a job whose cluster was archived before it, numbers may be all that is left."""
    known = cluster.machines
    return [known[each].name if each < len(known) else f"machine {each}" for each in machines]


class RingPace(NamedTuple):
    """What a job on a shared link is asked to keep, and what it reported last."""

    asked: KeptPace | None = None
    paced: bool | None = None  # whether its iterations wait for slots; None if it reports nothing
    measured_s: float | None = None  # a recent iteration


UNKNOWN = RingPace()


def shared_circles(
    job_id: str, view: Snapshot, pace_of: Callable[[str], RingPace] = lambda _: UNKNOWN
) -> list[Any]:
    """Return the links that a job shares, the most loaded first: circle and shift of every job, and the score.

    Circles of jobs that report are measured ones: their profiles are. Jobs with a pace are drawn as they keep it.
    """
    links_gbps = view.running[job_id].communication.link_gbps
    mine = {link for link in links_gbps if 1 < view.link_users(link) <= MAX_RINGS}
    met = {each: run for each, run in view.running.items() if mine & run.communication.link_gbps.keys()}
    found, paces = {}, {each: pace_of(each) for each in met}
    for each, running in met.items():
        where = running.placement
        given = (running.job, where.machines, where.server)
        drawn = circles(view.cluster, *given, aggregate=where.aggregate)
        on = {link: circle for link, circle in drawn.items() if link in mine}
        asked = paces[each].asked
        found[each] = {at: circle.stretched(asked.period_s) for at, circle in on.items()} if asked else on
    links = shared_links(found, view.cluster.uplink_gbps, view.cluster.node_names)
    shared = sorted((link for link in links if job_id in link.circles), key=lambda link: -link.load)
    shifts_s = {each: pace.asked.shift_s if pace.asked else met[each].shift_s for each, pace in paces.items()}
    return [_circles(link, shifts_s, paces) for link in shared[:MAX_LINKS]]


def _circles(link: SharedLink, shifts_s: Mapping[str, float], paces: Mapping[str, RingPace]) -> Any:
    """Return one link with its unified circle."""
    drawn = tuple(link.circles.values())
    unified = unify(tuple(circle.iteration_s for circle in drawn))
    whole = curve(drawn, [shifts_s[each] for each in link.circles], unified)
    rings = [
        {
            "job": job,
            "iteration_s": period_s,
            "shift_s": shifts_s[job],
            "arcs": [list(arc) for arc in circle.stretched(period_s).arcs],
            "asked_s": pace.asked.period_s if (pace := paces[job]).asked is not None else None,
            "paced": pace.paced,
            "measured_s": pace.measured_s,
        }
        for (job, circle), period_s in zip(link.circles.items(), unified.periods_s, strict=True)
    ]
    named = {"name": f"uplink of {link.name}", "gbps": link.gbps}
    return {**named, "perimeter_s": unified.perimeter_s, "score": whole.score(link.gbps), "jobs": rings}
