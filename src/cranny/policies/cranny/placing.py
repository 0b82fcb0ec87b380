"""The placement of one job: of several sets of machines, the one that costs the fewest GPU-seconds."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cranny.core.constrained_placer import evenly, shown_to
from cranny.core.constraints import Constraints, SameRack, rack_shares
from cranny.core.machine_set import members
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import communication, isolated
from cranny.model.arrays import Ints
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start
from cranny.policies._shared.candidates import vary_plan
from cranny.policies._shared.rank_map_in_racks import mapped_in_racks
from cranny.policies.cranny.free_gpus import FreeGpus, Room
from cranny.policies.cranny.link_effects import Effect, LinkEffects, alone
from cranny.policies.cranny.price_explanation import Held, MachineRationale, Price, PriceRationale
from cranny.policies.cranny.tail import Tail
from cranny.policies.cranny.type_costs import TypeCosts

if TYPE_CHECKING:
    from cranny.policies.cranny.machine_kernel import ClusterArrays, MachineSet
    from cranny.policies.cranny.shifting import PhasedLinks

ON_ONE_MACHINE = Effect(1.0)
NONE_KEPT: Mapping[int, int] = {}
MOST_KNOWN = 4096  # kinds of jobs whose slowdown alone is kept
ALIKE = 10  # sets of machines at most that are tried where links are shared in phases: as many as CASSINI does


class Priced(NamedTuple):
    """A placement, and what it costs in GPU-seconds."""

    placement: Placement
    effect: Effect
    length_s: float  # how long the job would run there if it communicated in no time
    own_gpu_s: float  # by which its communication makes it longer
    machines_gpu_s: float  # by which its machines are in use longer, and their holes worse
    types_gpu_s: float = 0.0  # by which other types of GPU would suit it better
    restart_s: float = 0.0  # before it goes on, if it ran before

    @property
    def takes_s(self) -> float:
        """How long the job is there."""
        return self.restart_s + self.length_s * self.effect.slowdown

    @property
    def total_gpu_s(self) -> float:
        """All terms together."""
        return self.own_gpu_s + self.effect.others_gpu_s + self.types_gpu_s + self.machines_gpu_s


class Placing:
    """Prices the sets of machines that a job could have."""

    def __init__(
        self,
        gpus: FreeGpus,
        types: TypeCosts,
        links: "LinkEffects | PhasedLinks | None",
        tail: Tail | None = None,
        *,
        rank_map: bool,
        racks: bool,
        phased: "PhasedLinks | None" = None,
    ) -> None:
        # Both compile, so they are imported only where they are used.
        from cranny.policies.cranny import candidate_sets_kernel, machine_kernel

        self._kernel = machine_kernel
        self._sets_kernel = candidate_sets_kernel
        self._gpus = gpus
        self._links = links
        self._tail = tail
        self._types = types
        self._slowdowns: dict[Hashable, float] = {}  # of jobs alone on some machines
        self._phased = phased  # the links, if jobs share them only while they communicate
        self._rank_map = rank_map
        self._racks = racks
        cluster = gpus.cluster
        in_rack = np.concatenate([np.arange(len(machines)) for machines in gpus.racks])
        # One machine of each rack after the other.
        self._apart: Ints = gpus.by_rack[np.argsort(in_rack, kind="stable")]
        self._rack_gpus: list[int] = [int(gpus.size[machines].sum()) for machines in gpus.racks]
        self.room = Room(len(cluster.machines), len(cluster.rack_nodes), int(gpus.size.max()))

    def best(
        self,
        job: Job,
        view: Snapshot,
        seconds: float,
        kept: Mapping[int, int] = NONE_KEPT,
        constraints: Constraints | None = None,
    ) -> Priced | None:
        """Return the cheapest placement of a job that runs for so long on one machine; None if it does not fit.

        Its constraints hold, and of the machines `kept` for others it has no more GPUs than these leave.
        """
        each = None if constraints is None else constraints.per_machine
        if constraints is not None and constraints.excluded:
            kept = {**kept, **dict.fromkeys(members(constraints.excluded), 0)}
        if job.resources is not None or each is not None:
            view = shown_to(job, view, Constraints(per_machine=each))
            if each is not None:  # it has so many GPUs of a machine, or none
                kept = {machine: each if left >= each else 0 for machine, left in kept.items()}
        at = self._gpus.seen_by(job, view, kept)
        spread = constraints is not None and constraints.spread > 1
        if job.gpus < len(at.waste) and not spread and not self._types.matter_to(job):
            found = self.on_one_machine(job, at, view, seconds)
            if found is not None:
                return found
        if int(at.rack_free.sum()) < job.gpus:
            return None
        sets = dict.fromkeys(self._sets_for(job, at, view.now_s, seconds, constraints))
        for speed, machines in self._types.machines_for(job):
            of_type = self._gpus.only(at, machines)
            if int(of_type.rack_free.sum()) >= job.gpus:
                sets |= dict.fromkeys(self._sets_for(job, of_type, view.now_s, seconds / speed, constraints))
        if constraints is not None and constraints.same_rack == "preferred":
            sets = self._in_one_rack(sets) or sets
        if each is not None:
            sets = dict.fromkeys(_even(held, each, job.gpus) for held in sets)
        if not sets:
            return None
        options = self._priced(job, list(sets), at, view, seconds)
        if self._phased is not None and constraints is None:
            alike = self._alike(job, min(options, key=_total_gpu_s)[0], view, kept)
            options += self._priced(job, [held for held in alike if held not in sets], at, view, seconds)
        options.sort(key=_total_gpu_s)  # of equal ones the first stays first
        best, prices = options[0][0], [price for _, price in options]
        why = PriceRationale(job, view.cluster, view.available(job), seconds, prices[0], tuple(prices[1:]))
        chosen = best.placement
        return best._replace(placement=Placement.made(chosen.machines, (), None, why, chosen.server))

    def on_one_machine(self, job: Job, at: "ClusterArrays", view: Snapshot, seconds: float) -> Priced | None:
        """Return the cheapest machine that has room for a job."""
        kernel, gpus, known = self._kernel, job.gpus, self._gpus
        if at is known.arrays:
            free, found = (
                view.machines,
                kernel.cheapest_of_all(known.ints, known.floats, gpus, view.now_s, seconds),
            )
        else:
            free, found = view.available(job), kernel.cheapest_machines(at, gpus, view.now_s, seconds)
        best, use, holes, second = found[:4]
        if best == kernel.NONE:
            return None
        terms = [found[:3]] if second == kernel.NONE else [found[:3], found[3:]]
        why = MachineRationale(job, view.cluster, free, seconds, terms)
        return Priced(Placement.made((best,) * gpus, (), None, why), ON_ONE_MACHINE, seconds, 0.0, use + holes)

    def best_slowdown(self, job: Job) -> float:
        """Return how much longer than on one machine a job runs alone in one rack; inf if none is so large."""
        if job.gpus < len(self._gpus.waste):
            return 1.0
        for machines, gpus in zip(self._gpus.racks, self._rack_gpus, strict=True):
            if gpus >= job.gpus:
                return self._alone(job, machines)
        return math.inf

    def slowdown_alone(self, job: Job) -> float:
        """Return how much longer than on one machine a job runs alone, in one rack if one is so large.

        It is 1 for a job that is larger than the cluster: it may still run with fewer workers.
        """
        if job.gpus > sum(self._rack_gpus):
            return 1.0
        found = self.best_slowdown(job)
        return found if math.isfinite(found) else self._alone(job, self._gpus.by_rack)

    def slowdown_apart(self, job: Job) -> float:
        """Return how much longer than on one machine a job runs alone on as many machines as possible."""

        def found() -> float:
            each, more = divmod(job.gpus, len(self._apart))
            gpus = np.full(len(self._apart), each)
            gpus[:more] += 1
            held = zip(self._apart.tolist(), gpus.tolist(), strict=True)
            return self._slowdown_on(job, self._ranks(job, tuple(sorted(pair for pair in held if pair[1]))))

        return self._known_slowdown("apart", job, found) if job.gpus <= sum(self._rack_gpus) else 1.0

    def _alone(self, job: Job, machines: Ints) -> float:
        """Return how much longer than on one machine a job runs alone on the first of some machines."""

        def found() -> float:
            filled = np.repeat(machines, self._gpus.size[machines])[: job.gpus]
            held = tuple(zip(*[each.tolist() for each in np.unique(filled, return_counts=True)], strict=True))
            return self._slowdown_on(job, self._ranks(job, held))

        return self._known_slowdown((int(machines[0]), len(machines)), job, found)

    def _known_slowdown(self, where: Hashable, job: Job, find: Callable[[], float]) -> float:
        """Return the slowdown of all jobs like this on some machines, found once."""
        like = (where, job.gpus, job.collective, job.tp, job.pp, job.profile)
        found = self._slowdowns.get(like)
        if found is None:
            if len(self._slowdowns) >= MOST_KNOWN:
                self._slowdowns.clear()
            found = self._slowdowns[like] = find()
        return found

    def _slowdown_on(self, job: Job, mapped: tuple[int, ...]) -> float:
        if self._phased is not None:
            return self._phased.alone(job, Placement(mapped, server=_server(job, mapped)))
        return isolated(job, communication(self._gpus.cluster, job, mapped, _server(job, mapped)))

    def _sets_for(
        self, job: Job, at: "ClusterArrays", now_s: float, seconds: float, constraints: Constraints | None
    ) -> Iterator[Held]:
        """Yield sets of machines that hold a job within its constraints; one machine alone if that does."""
        if constraints is not None and constraints.spread > 1:
            yield from self._spread_sets(job.gpus, at, now_s, seconds, constraints)
            return
        if job.gpus < len(at.waste) and self._types.matter_to(job):  # else it was looked for already
            best, _, _, second, *_ = self._kernel.cheapest_machines(at, job.gpus, now_s, seconds)
            if best != self._kernel.NONE:
                yield from [((int(each), job.gpus),) for each in (best, second) if each != self._kernel.NONE]
                return
        same_rack = None if constraints is None else constraints.same_rack
        yield from self._sets(job.gpus, at, now_s, seconds, same_rack)

    def _in_one_rack(self, sets: Iterable[Held]) -> dict[Held, None]:
        rack = self._gpus.rack
        return {held: None for held in sets if len({int(rack[machine]) for machine, _ in held}) == 1}

    def _sets(
        self, gpus: int, at: "ClusterArrays", now_s: float, seconds: float, same_rack: SameRack | None
    ) -> Iterator[Held]:
        """Yield sets of machines that hold a job."""
        kernel, room = self._sets_kernel, self.room
        where = kernel.RACKS_TOO if self._racks else kernel.ANYWHERE
        if same_rack is not None:
            where = kernel.RACK_ONLY if same_rack == "required" else kernel.RACK_FIRST
        found, used = room.sets, room.used
        count = kernel.candidate_sets(at, where, gpus, now_s, seconds, room.trial, room.racks, found, used)
        for number, machines in enumerate(used[:count].tolist()):
            yield tuple(zip(*found[number, :, :machines].tolist(), strict=True))

    def _spread_sets(
        self, gpus: int, at: "ClusterArrays", now_s: float, seconds: float, constraints: Constraints
    ) -> Iterator[Held]:
        """Yield sets of machines that spread a job over racks, the fullest or the emptiest."""
        kernel, room, free = self._kernel, self.room, at.rack_free.tolist()
        for tightest in (True, False):
            shares = rack_shares(gpus, constraints, free, tightest=tightest)
            if shares is None:
                return
            room.racks[:] = shares
            for kind in (kernel.ANY, kernel.IN_USE):
                yield _held(room.best, int(kernel.of_racks(at, kind, room.racks, now_s, seconds, room.best)))

    def _alike(self, job: Job, best: Priced, view: Snapshot, kept: Mapping[int, int]) -> list[Held]:
        """Return sets of machines like those of the best so far, if jobs would contend there."""
        if not best.effect.slowed:
            return []
        plans = vary_plan(Plan(view.version, (Start(job, best.placement),)), view, ALIKE)
        ranks = [
            action.placement.machines for plan in plans for action in plan.actions if isinstance(action, Start)
        ]
        alike = [tuple(sorted(Counter(each).items())) for each in ranks]
        return [held for held in alike if all(gpus <= kept.get(machine, gpus) for machine, gpus in held)]

    def _priced(
        self, job: Job, sets: Sequence[Held], at: "ClusterArrays", view: Snapshot, seconds: float
    ) -> list[tuple[Priced, Price]]:
        """Return what a job costs on each of some sets of machines, in all and by terms for the explanation."""
        placements, effects, lengths_s = [], [], []
        for held in sets:
            placement = self.on(job, held, view)
            running = view.as_tried(job, placement)
            placements.append(placement)
            lengths_s.append(seconds * running.stretch)
            effects.append(alone(running) if self._links is None else self._links.effect(running, lengths_s[-1]))
        takes_s = [length_s * effect.slowdown for length_s, effect in zip(lengths_s, effects, strict=True)]
        options = []
        for held, placement, effect, length_s, terms in zip(
            sets, placements, effects, lengths_s, self._terms(at, sets, view.now_s, takes_s), strict=True
        ):
            own_s = (effect.slowdown - 1.0) * length_s
            if self._tail is not None:
                own_s = self._tail.counted_s(job.gpus, view.now_s - job.submit_s + length_s, own_s)
            own_gpu_s = own_s * job.gpus
            types_gpu_s = self._types.more_gpu_s(job, held, length_s, seconds)
            machines_gpu_s, opened, longer, holes = terms
            price = Price(
                held,
                own_gpu_s,
                effect.others_gpu_s,
                types_gpu_s,
                opened,
                longer,
                holes,
                effect.slowdown,
                effect.slowed,
            )
            priced = Priced(placement, effect, length_s, own_gpu_s, machines_gpu_s, types_gpu_s)
            options.append((priced, price))
        return options

    def on(self, job: Job, held: Held, view: Snapshot) -> Placement:
        """Return the placement of a job on some machines, with its ranks where they exchange least."""
        ranks = self._ranks(job, held)
        return view.placement(job, ranks, server=_server(job, ranks))

    def _ranks(self, job: Job, held: Held) -> tuple[int, ...]:
        """Return the machine of each rank: those that exchange most share one, or a rack."""
        if not self._rank_map:
            return tuple([machine for machine, gpus in held for _ in range(gpus)])
        return mapped_in_racks(job, self._gpus.cluster, dict(held))

    def _terms(
        self, at: "ClusterArrays", sets: Sequence[Held], now_s: float, seconds: Sequence[float]
    ) -> list[list[float]]:
        """Return what sets of machines cost for so long, and of that: idle ones, longer use, and holes."""
        terms = np.empty((len(sets), 4))
        chosen = np.array([pair for held in sets for pair in held], np.int64).reshape(-1, 2)
        past = np.array([*accumulate(map(len, sets))], np.int64)
        self._sets_kernel.set_terms(at, chosen, past, now_s, np.array(seconds), terms)
        return terms.tolist()


def _even(held: Held, per_machine: int, gpus: int) -> Held:
    """Return a set of machines with so many GPUs of a job on each."""
    machines = evenly(Counter(dict(held)), per_machine, gpus)
    return tuple((machine, per_machine) for machine, _ in held if machine in machines)


def _server(job: Job, ranks: tuple[int, ...]) -> int | None:
    """Return the machine of a job's parameter server, if it has one: that of the first rank."""
    return ranks[0] if job.collective == "ina" else None


def _total_gpu_s(option: tuple[Priced, Price]) -> float:
    """Return what a set of machines costs in all."""
    return option[0].total_gpu_s


def _held(found: "MachineSet", used: int) -> Held:
    """Return a set of machines as plain numbers, those of a rack together as the kernels found them."""
    return tuple(zip(found.machines[:used].tolist(), found.gpus[:used].tolist(), strict=True))
