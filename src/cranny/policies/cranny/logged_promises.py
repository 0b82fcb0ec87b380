"""Promises as plain values, which a log keeps, so that a service that starts again goes on from them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cranny.model.cluster import Cluster
from cranny.policies.cranny.promised_starts import PromisedStart
from cranny.policies.cranny.wait_explanation import WaitMemory

if TYPE_CHECKING:
    from cranny.policies.cranny.followed import Followed


def written(at: "Followed") -> dict[str, dict[str, Any]]:
    """Return what each waiting job was promised, by its id; machines by their names, since numbers may change."""
    names = at.cluster.node_names
    return {
        each.job_id: {
            "gpus": each.gpus,
            "start_s": float(each.start_s),
            "machines": [names[machine] for machine in each.machines],
            "gpus_on": list(each.gpus_on),
            "constrained": each.constrained,
            "chosen": each.chosen,
            "first": each.job_id in (at.head, at.constrained_head),  # of the queue that did not fit
        }
        for each in at.promises.by_job.values()
    }


def read(promises: Mapping[str, Mapping[str, Any]], cluster: Cluster) -> WaitMemory:
    """Return what was written; a promise of machines that are no longer there is dropped."""
    there = {machine.name: number for number, machine in enumerate(cluster.machines)}
    found = {each.job_id: each for each in _known(promises, there)}
    first = {promises[job_id]["constrained"]: job_id for job_id in found if promises[job_id]["first"]}
    in_order = tuple(sorted(found.values(), key=lambda promise: promise.start_s))
    return WaitMemory(cluster, in_order, {}, {}, frozenset(), first.get(False), first.get(True))


def _known(promises: Mapping[str, Mapping[str, Any]], there: Mapping[str, int]) -> Iterator[PromisedStart]:
    """Yield the promises whose machines are there."""
    for job_id, said in promises.items():
        if all(name in there for name in said["machines"]):
            machines = tuple([there[name] for name in said["machines"]])
            # Logs of older versions do not say all.
            on, chosen = tuple(said.get("gpus_on", ())), said.get("chosen", False)
            yield PromisedStart(job_id, said["gpus"], said["start_s"], machines, on, said["constrained"], chosen)
