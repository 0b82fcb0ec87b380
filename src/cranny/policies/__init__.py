"""The policies, by name. A policy is one file; adding one means adding a line to this table."""

import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cranny.model.errors import CrannyError, InputError, unknown

if TYPE_CHECKING:
    from cranny.core.protocol import Placer  # only its name: listing policies must not load the core


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a policy is found and what it does."""

    path: str  # module:class, imported when asked for
    about: str
    paper: str
    order: str = "fifo"  # the queue order that its paper uses


TABLE: dict[str, Entry] = {
    "titan": Entry(
        "cranny.policies.titan:Titan",
        "fewest idle machines opened, then fewest machines, then least cross-machine traffic",
        "Titan, ICNP'24",
    ),
    "best-fit": Entry(
        "cranny.policies.best_fit:BestFit",
        "the machine that the job fills most tightly; large jobs take the emptiest machines",
        "textbook; what Titan's paper says of ElasticFlow",
    ),
    "best-fit-mapped": Entry(
        "cranny.policies.best_fit:BestFitMapped",
        "best fit's machines with Titan's map of ranks, which no paper has",
        "ours; tells Titan's machines from its map",
    ),
    "elasticflow": Entry(
        "cranny.policies.elasticflow:ElasticFlow",
        "powers of two, buddy blocks; a job of 5 holds 8 GPUs",
        "ElasticFlow, ASPLOS'23",
    ),
    "consolidate-idle": Entry(
        "cranny.policies.consolidate_idle:ConsolidateIdle",
        "as few machines as the job could have, idle ones first; otherwise it waits",
        "Titan's ElasticFlow baseline, ICNP'24",
    ),
    "hived": Entry(
        "cranny.policies.hived:HiveD",
        "virtual clusters of buddy cells; a tenant never takes cells of another",
        "HiveD, OSDI'20",
    ),
    "fragments-first": Entry(
        "cranny.policies.fragments_first:FragmentsFirst",
        "fill scattered free GPUs exactly before anything else",
        "Titan's HiveD baseline, ICNP'24",
    ),
    "tiresias": Entry(
        "cranny.policies.tiresias:Tiresias",
        "consolidate models with skewed tensors, spread the others",
        "Tiresias, NSDI'19",
        order="las",
    ),
    "gpu-balance": Entry(
        "cranny.policies.gpu_balance:GpuBalance",
        "the machines with the most free GPUs first",
        "NetPack's GB baseline, ASPLOS'24",
    ),
    "flow-balance": Entry(
        "cranny.policies.flow_balance:FlowBalance",
        "the machines with the fewest flows first",
        "NetPack's FB baseline, ASPLOS'24",
    ),
    "least-fragmentation": Entry(
        "cranny.policies.least_fragmentation:LeastFragmentation",
        "use up the machines in use, those with the fewest free GPUs first",
        "NetPack's LF baseline, ASPLOS'24",
    ),
    "optimus": Entry(
        "cranny.policies.optimus:Optimus",
        "evenly over the fewest machines with the most free GPUs",
        "Optimus's placement, EuroSys'18",
    ),
    "tetris": Entry(
        "cranny.policies.tetris:Tetris",
        "the machines whose free GPUs and bandwidth align best with the demand",
        "Tetris, SIGCOMM'14",
    ),
    "comb": Entry(
        "cranny.policies.comb:Comb",
        "most free GPUs, then most switch memory left, then most bandwidth left",
        "NetPack's naive combination, ASPLOS'24",
    ),
    "netpack": Entry(
        "cranny.policies.netpack:NetPack",
        "batches of jobs where the shared network leaves most, with in-network aggregation for those that gain",
        "NetPack, ASPLOS'24",
        order="knapsack",
    ),
    "netpack-lean": Entry(
        "cranny.policies.netpack:NetPackLean",
        "NetPack that counts what is left of links once, not for each machine, which no paper has",
        "ours; a variant of NetPack, ASPLOS'24",
        order="knapsack",
    ),
    "random": Entry("cranny.policies.random:Random", "any free GPUs", "the usual yardstick"),
    "exact": Entry(
        "cranny.exact.nimp:Exact",
        "Titan's problem solved to the optimum by CP-SAT; small clusters only",
        "Titan, ICNP'24, Eq. 1",
    ),
}


def listing() -> dict[str, str]:
    """Return the policies by name, each with a line about it and the paper it comes from."""
    return {name: f"{entry.about} ({entry.paper})" for name, entry in TABLE.items()}


class _Listing(ModuleType):
    """The module of this file, which lists its policies when called.

    Python gives `cranny` the attribute `policies`, this module, as soon as anybody imports it. So that
    `cranny.policies()` works whoever comes first, the module itself can be called.
    """

    def __call__(self) -> dict[str, str]:
        return listing()


sys.modules[__name__].__class__ = _Listing


def policy_class(name: str) -> "type[Placer]":
    """Return the class of a policy by name."""
    if name not in TABLE:
        raise unknown("policy", name, TABLE)
    module, _, named = TABLE[name].path.partition(":")
    try:
        found: type[Placer] = getattr(import_module(module), named)
    except ModuleNotFoundError as error:
        raise CrannyError(f"policy {name!r} needs {error.name!r}: pip install 'cranny[exact]'") from None
    return found


def policy(name: str, **options: Any) -> "Placer":
    """Make a policy by name; options go to its constructor."""
    try:
        chosen: Placer = policy_class(name)(**options)
    except TypeError as error:
        raise InputError(f"policy {name!r}: {error}") from None
    return chosen
