"""Jobs that share links, from YAML or JSON files; the format is described in `docs/understand/cassini.md`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from cranny.model.circle import Arc, Circle
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError, unknown
from cranny.model.job import Job
from cranny.model.profile import ProfileLibrary, library
from cranny.model.topology_spec import MAX_GPUS_PER_MACHINE, MAX_MACHINES
from cranny.model.yaml_file import MAX_NAME, Document, Fields, Name, Positive, Step, checked
from cranny.network.interleave.affinity import SharedLink
from cranny.network.interleave.demand import circles

MAX_JOBS = 1000
MS = 1e-3

Count = Annotated[int, Field(ge=1, le=MAX_MACHINES)]
ArcFields = Annotated[list[Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(min_length=3, max_length=3)]

_MUST_BE = {
    "name": f"printable text of 1 to {MAX_NAME} characters",
    "model": "the name of a model profile",
    "collective": "the name of a collective",
    "jobs": f"a list of 1 to {MAX_JOBS} entries",
    "jobs[]": "a mapping of fields, or the name of a job",
    "links": "a list with an entry for each link",
    "arcs": "a list of [from ms, to ms, Gbps]",
    "arcs[]": "[from ms, to ms, Gbps]",
    **dict.fromkeys(("gpus", "machines", "tp", "pp", "batch", "minibatches"), "a whole number of 1 or more"),
}


class JobFields(Fields):
    """A job by hand (`iteration_ms`, `arcs`), or by its model and how it is spread over machines."""

    name: Name
    iteration_ms: Positive | None = None
    arcs: list[ArcFields] | None = None
    model: Name | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    gpus: Count | None = None
    machines: Count | None = None
    collective: Name = "ring"
    tp: Count = 1
    pp: Count = 1
    minibatches: Annotated[int, Field(ge=1, le=1000)] = 3


class LinkFields(Fields):
    """A link and the names of the jobs on it."""

    name: Name
    gbps: Positive | None = None
    jobs: Annotated[list[Name], Field(min_length=1)]


class JobsFields(Fields):
    """The whole file; without `links`, all jobs share one."""

    link_gbps: Positive = 100.0
    jobs: Annotated[list[JobFields], Field(min_length=1, max_length=MAX_JOBS)]
    links: Annotated[list[LinkFields], Field(min_length=1)] | None = None


def read_links(path: str | Path, profiles: ProfileLibrary | None = None) -> list[SharedLink]:
    """Return the links of a file with their jobs, or say in one line what is wrong with the file, and where."""
    document = Document(Path(path), text_fields=frozenset({"name", "model", "collective"}))
    fields = checked(document, JobsFields, {"jobs": JobFields, "links": LinkFields}, _MUST_BE)
    models = library() if profiles is None else profiles
    found: dict[str, Circle] = {}
    for number, job in enumerate(fields.jobs):
        steps: tuple[Step, ...] = ("jobs", number)
        if job.name in found:
            raise document.error((*steps, "name"), f"two jobs are called {job.name!r}")
        found[job.name] = _circle(document, steps, job, fields.link_gbps, models)
    if fields.links is None:
        return [SharedLink("link", fields.link_gbps, found)]
    made: dict[str, SharedLink] = {}
    for number, link in enumerate(fields.links):
        steps = ("links", number)
        if link.name in made:
            raise document.error((*steps, "name"), f"two links are called {link.name!r}")
        on: dict[str, Circle] = {}
        for at, name in enumerate(link.jobs):
            if name not in found:
                raise document.error((*steps, "jobs", at), str(unknown("job", name, found)))
            if name in on:
                raise document.error((*steps, "jobs", at), f"job {name!r} is named twice")
            on[name] = found[name]
        made[link.name] = SharedLink(link.name, link.gbps or fields.link_gbps, on)
    return list(made.values())


def _circle(
    document: Document, steps: tuple[Step, ...], job: JobFields, link_gbps: float, models: ProfileLibrary
) -> Circle:
    """Return a job's circle, by hand or from its model."""
    by_hand = job.iteration_ms is not None or job.arcs is not None
    if by_hand == (job.model is not None):
        raise document.error(steps, "needs either iteration_ms and arcs, or a model")
    try:
        return _by_hand(job) if by_hand else _by_model(job, link_gbps, models)
    except InputError as error:
        raise document.error(steps, str(error)) from None


def _by_hand(job: JobFields) -> Circle:
    """Return the circle that the file draws."""
    if job.iteration_ms is None or job.arcs is None:
        missing = "iteration_ms" if job.iteration_ms is None else "arcs"
        raise InputError(f"{missing} is missing")
    for field in ("batch", "gpus", "machines"):
        if getattr(job, field) is not None:
            raise InputError(f"{field} is only for jobs with a model")
    arcs: list[Arc] = [(start * MS, end * MS, gbps) for start, end, gbps in job.arcs]
    return Circle(job.iteration_ms * MS, tuple(arcs))


def _by_model(job: JobFields, link_gbps: float, models: ProfileLibrary) -> Circle:
    """Return the circle on the busiest uplink when workers are spread evenly over machines of one rack."""
    gpus = job.gpus or job.machines
    if gpus is None:
        raise InputError("gpus is missing")
    machines = job.machines or gpus
    if gpus % machines or gpus // machines > MAX_GPUS_PER_MACHINE:
        raise InputError(f"{gpus} GPUs cannot be spread evenly over {machines} machines")
    name = str(job.model)
    profile = models[name] if job.batch is None else models.at(name, job.batch)
    each = gpus // machines
    made = Job(id=job.name, gpus=gpus, model=profile, collective=job.collective, tp=job.tp, pp=job.pp)
    cluster = Cluster.single_rack(machines, each, link_gbps)
    found = circles(cluster, made, [rank // each for rank in range(gpus)], minibatches=job.minibatches)
    return max(found.values(), key=lambda circle: circle.gigabits, default=Circle(profile.iteration_s))
