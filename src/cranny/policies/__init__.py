"""The policies, by name. A policy is one file; adding one means adding an entry to `TABLE`.

No policy imports another: what several need is in `_shared`. None reads a clock, draws without a generator that it
is given, or changes the state: it gets a snapshot and returns a plan.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cranny.model.errors import InputError, MissingExtraError, unknown

if TYPE_CHECKING:
    from cranny.core.protocol import Placer  # only its name: listing policies must not load the core


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """Where a policy is defined and what it does."""

    path: str  # module:class, imported when it is used
    about: str
    paper: str
    order: str = "fifo"  # the queue order that its paper uses, which objects of the class have too
    host: str = ""  # the policy that it improves


DEFAULT_POLICY = "cranny"  # of every command, call and service that names none
# What a comparison or a what-if shows if it names no policies: the default beside its rivals.
COMPARED = (DEFAULT_POLICY, "titan", "netpack", "tiresias", "best-fit", "consolidate-idle")
WHAT_IF = (DEFAULT_POLICY, "titan", "best-fit", "consolidate-idle")  # which are fast on logs of a million jobs
TABLE: dict[str, PolicyEntry] = {
    "cranny": PolicyEntry(
        "cranny.policies.cranny:Cranny",
        "where a job costs the fewest GPU-seconds: its communication, what others lose, machines, holes",
        "ours; adds up the terms of Titan, ICNP'24, NetPack, CASSINI and HAS",
        order="backfill",
    ),
    "titan": PolicyEntry(
        "cranny.policies.titan:Titan",
        "fewest idle machines opened, then fewest machines, then least cross-machine traffic",
        "Titan, ICNP'24",
    ),
    "titan-literal": PolicyEntry(
        "cranny.policies.titan.literal:TitanLiteral",
        "Titan's Algorithms 1-3 as printed: no tightest fit, no map of ranks",
        "Titan, ICNP'24",
    ),
    "best-fit": PolicyEntry(
        "cranny.policies.best_fit:BestFit",
        "the machine that the job fills most tightly; large jobs take the emptiest machines",
        "textbook; what Titan's paper says of ElasticFlow",
    ),
    "best-fit-mapped": PolicyEntry(
        "cranny.policies.best_fit:BestFitMapped",
        "best fit's machines with Titan's map of ranks, which no paper has",
        "ours; separates Titan's machines from its map",
    ),
    "elasticflow": PolicyEntry(
        "cranny.policies.elasticflow:ElasticFlow",
        "powers of two, buddy blocks; a job of 5 holds 8 GPUs",
        "ElasticFlow, ASPLOS'23",
    ),
    "consolidate-idle": PolicyEntry(
        "cranny.policies.titan_baselines:ConsolidateIdle",
        "as few machines as the job could have, idle ones first; otherwise it waits",
        "Titan's ElasticFlow baseline, ICNP'24",
    ),
    "consolidate-idle-mapped": PolicyEntry(
        "cranny.policies.titan_baselines:ConsolidateIdleMapped",
        "consolidate-idle's machines with Titan's map of ranks, which no paper has",
        "ours; a variant of Titan's baseline, ICNP'24",
    ),
    "hived": PolicyEntry(
        "cranny.policies.hived:HiveD",
        "virtual clusters of buddy cells; a tenant never takes cells of another",
        "HiveD, OSDI'20",
    ),
    "fragments-first": PolicyEntry(
        "cranny.policies.titan_baselines:FragmentsFirst",
        "fill scattered free GPUs exactly before anything else",
        "Titan's HiveD baseline, ICNP'24",
    ),
    "fragments-first-mapped": PolicyEntry(
        "cranny.policies.titan_baselines:FragmentsFirstMapped",
        "fragments-first's machines with Titan's map of ranks, which no paper has",
        "ours; a variant of Titan's baseline, ICNP'24",
    ),
    "tiresias": PolicyEntry(
        "cranny.policies.tiresias:Tiresias",
        "consolidate models with skewed tensors, spread the others",
        "Tiresias, NSDI'19",
        order="las",
    ),
    "tiresias-mapped": PolicyEntry(
        "cranny.policies.tiresias:TiresiasMapped",
        "tiresias's machines with Titan's map of ranks, which no paper has",
        "ours; a variant of Tiresias, NSDI'19",
        order="las",
    ),
    "gpu-balance": PolicyEntry(
        "cranny.policies.netpack_baselines:GpuBalance",
        "the machines with the most free GPUs first",
        "NetPack's GB baseline, ASPLOS'24",
    ),
    "gpu-balance-per-worker": PolicyEntry(
        "cranny.policies.netpack_baselines:GpuBalancePerWorker",
        "each worker on the machine with the most free GPUs by then",
        "another reading of NetPack's GB baseline, ASPLOS'24",
    ),
    "flow-balance": PolicyEntry(
        "cranny.policies.netpack_baselines:FlowBalance",
        "the machines with the fewest flows first",
        "NetPack's FB baseline, ASPLOS'24",
    ),
    "flow-balance-per-worker": PolicyEntry(
        "cranny.policies.netpack_baselines:FlowBalancePerWorker",
        "each worker on the machine with the fewest flows by then",
        "another reading of NetPack's FB baseline, ASPLOS'24",
    ),
    "least-fragmentation": PolicyEntry(
        "cranny.policies.netpack_baselines:LeastFragmentation",
        "use up the machines in use, those with the fewest free GPUs first",
        "NetPack's LF baseline, ASPLOS'24",
    ),
    "optimus": PolicyEntry(
        "cranny.policies.optimus:Optimus",
        "evenly over the fewest machines with the most free GPUs",
        "Optimus's placement, EuroSys'18",
    ),
    "tetris": PolicyEntry(
        "cranny.policies.tetris:Tetris",
        "the machines whose free GPUs and bandwidth align best with the demand",
        "Tetris, SIGCOMM'14",
    ),
    "tetris-per-worker": PolicyEntry(
        "cranny.policies.tetris:TetrisPerWorker",
        "each worker where free GPUs and bandwidth align best with its demand by then",
        "Tetris, SIGCOMM'14, worker by worker",
    ),
    "comb": PolicyEntry(
        "cranny.policies.netpack_baselines:Comb",
        "most free GPUs, then most switch memory left, then most bandwidth left",
        "NetPack's naive combination, ASPLOS'24",
    ),
    "netpack": PolicyEntry(
        "cranny.policies.netpack:NetPack",
        "batches of jobs where the shared network leaves most, with in-network aggregation for those that gain",
        "NetPack, ASPLOS'24",
        order="knapsack",
    ),
    "netpack-lean": PolicyEntry(
        "cranny.policies.netpack:NetPackLean",
        "NetPack that counts what is left of links once, not for each machine, which no paper has",
        "ours; a variant of NetPack, ASPLOS'24",
        order="knapsack",
    ),
    "has": PolicyEntry(
        "cranny.policies.has:Has",
        "resizes jobs on mixed GPUs: most throughput for each split of the workers, then the lowest mean JCT; "
        "up to 5 million splits",
        "HAS, TPDS'24",
    ),
    "jps": PolicyEntry(
        "cranny.policies.has:Jps",
        "resizes jobs on mixed GPUs: as has, for a sample of the splits",
        "JPS, TPDS'24",
    ),
    "has-exact": PolicyEntry(
        "cranny.policies.has:HasExact",
        "resizes jobs on mixed GPUs: the lowest mean JCT itself, proved or with a bound",
        "ours; solves the problem of HAS, TPDS'24",
    ),
    "has-resets": PolicyEntry(
        "cranny.policies.has:HasResets",
        "resizes jobs on mixed GPUs: as has-exact, but short jobs first, since others get their workers then; no "
        "job has less than half of the speed of its max-min fair share",
        "ours; with the resets of HAS, TPDS'24, in mind",
    ),
    "optimus-shares": PolicyEntry(
        "cranny.policies.optimus:OptimusShares",
        "resizes jobs: one worker more to the job that gains most, with equal parts for all workers",
        "Optimus, EuroSys'18",
    ),
    "optimus-lb": PolicyEntry(
        "cranny.policies.optimus:OptimusLb",
        "resizes jobs: as optimus-shares, with parts in proportion to throughput",
        "HAS's Optimus-LB baseline, TPDS'24",
    ),
    "las": PolicyEntry(
        "cranny.policies.has:Las",
        "resizes jobs on mixed GPUs: max-min fair throughput (not the queue order of this name)",
        "HAS's LAS baseline, TPDS'24",
    ),
    "gavel": PolicyEntry(
        "cranny.policies.gavel:Gavel",
        "rounds of six minutes, one GPU type a job and round, max-min fair over time",
        "Gavel, OSDI'20",
    ),
    "themis": PolicyEntry(
        "cranny.policies.themis:Themis",
        "leases of GPUs, auctioned to the jobs that are farthest from a fair finish",
        "Themis, NSDI'20",
    ),
    "themis+cassini": PolicyEntry(
        "cranny.policies.cassini:Cassini",
        "of Themis's equally fair placements the one whose jobs interleave best on links, with shifts",
        "CASSINI, NSDI'24",
        host="themis",
    ),
    "pollux": PolicyEntry(
        "cranny.policies.pollux:Pollux",
        "workers on machines with which all jobs together make the most progress, by a genetic search",
        "Pollux, OSDI'21",
    ),
    "pollux+cassini": PolicyEntry(
        "cranny.policies.cassini:Cassini",
        "of Pollux's equally good placements the one whose jobs interleave best on links, with shifts",
        "CASSINI, NSDI'24",
        host="pollux",
    ),
    "titan+cassini": PolicyEntry(
        "cranny.policies.cassini:Cassini",
        "Titan on machines of the same kind where jobs interleave best on links, which no paper has",
        "ours; CASSINI, NSDI'24",
        host="titan",
    ),
    "netpack+cassini": PolicyEntry(
        "cranny.policies.cassini:Cassini",
        "NetPack on machines of the same kind where jobs interleave best on links, which no paper has",
        "ours; CASSINI, NSDI'24",
        order="knapsack",
        host="netpack",
    ),
    "ideal": PolicyEntry(
        "cranny.policies.ideal:Ideal",
        "links that no other job uses; a job waits for them",
        "CASSINI's Ideal, NSDI'24",
    ),
    "random": PolicyEntry("cranny.policies.random:Random", "any free GPUs", "the usual baseline"),
    "exact": PolicyEntry(
        "cranny.exact.titan:Exact",
        "Titan's problem solved to the optimum by CP-SAT; small clusters only",
        "Titan, ICNP'24, Eq. 1",
    ),
}


def listing() -> dict[str, str]:
    """Return the policies by name, each with a description and the paper it comes from."""
    return {name: f"{entry.about} ({entry.paper})" for name, entry in TABLE.items()}


class _Listing(ModuleType):
    """The package, made callable: `cranny.policies()` lists the policies.

    Importing any policy binds this package as the attribute `policies` of `cranny`, whatever `cranny` defines
    itself. So that `cranny.policies()` and `import cranny.policies` both work in any order, the package can be
    called.
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
        raise MissingExtraError(f"policy {name!r}", error.name) from None
    return found


def options_of(name: str) -> set[str]:
    """Return the options of a policy, with those of its host and of its base class."""
    found = set(_parameters(policy_class(name)))
    if host := TABLE[name].host:
        found |= _parameters(policy_class(host))
    return found - {"host"}


@cache  # it takes longer than to make a policy
def _parameters(chosen: "type[Placer]") -> frozenset[str]:
    """Return the parameters of a class; one that takes any passes those that it does not name to its base."""
    found: set[str] = set()
    for kind in chosen.__mro__:
        parameters = signature(kind).parameters.values()
        named = {each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD}
        found |= named
        if len(named) == len(parameters):
            break
    return frozenset(found)


def policy(name: str, **options: Any) -> "Placer":
    """Make a policy by name; options go to its constructor, and those that it does not have to its host's."""
    made = policy_class(name)
    known = options_of(name)
    for option in options:
        if option not in known:
            settable = known - {"rng"}  # which a run sets by its seed
            what = unknown("option", option, settable) if settable else "it has no options"
            raise InputError(f"policy {name!r}: {what}")
    host = TABLE[name].host
    if not host:
        return made(**options)
    own = _parameters(made)
    under = policy_class(host)(**{option: value for option, value in options.items() if option not in own})
    above: Callable[..., Placer] = made
    return above(under, **{option: value for option, value in options.items() if option in own})
