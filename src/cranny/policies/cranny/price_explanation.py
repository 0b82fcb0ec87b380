"""Explains placements by their price, term by term, and by what the next best machines would cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from cranny.core.explanation import DefaultRationale
from cranny.core.machine_set import FreeMachines
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import counted, percent

Held = tuple[tuple[int, int], ...]  # machines, and the GPUs taken of each
NAMED_MACHINES = 4
SAME_GPU_S = 1e-6  # sums that differ by less are equal but for rounding
# The terms of a price and what they are for, in the order in which they are listed.
TERMS: Mapping[str, str] = {
    "own": "its own communication",
    "others": "slowing other jobs",
    "types": "GPUs of other types",
    "opened": "opening idle machines",
    "longer": "keeping machines in use longer",
    "holes": "GPUs left over that are hard to use",
}


class Price(NamedTuple):
    """What a job costs on a set of machines, in GPU-seconds, by terms."""

    held: Held
    own: float = 0.0  # by which its communication makes it longer
    others: float = 0.0  # that running jobs need more
    types: float = 0.0  # by which GPUs of the type that suits it best would cost less
    opened: float = 0.0  # of idle machines, as long as the job runs
    longer: float = 0.0  # by which machines are in use longer than without it
    holes: float = 0.0  # of GPUs left over, less those that were there before
    slowdown: float = 1.0  # how many times longer the job runs than on one machine
    slowed: tuple[tuple[str, float], ...] = ()  # jobs that lose most, and how many times longer they run

    @property
    def terms(self) -> dict[str, float]:
        """All terms by name."""
        return dict(
            zip(TERMS, (self.own, self.others, self.types, self.opened, self.longer, self.holes), strict=True)
        )

    @property
    def total(self) -> float:
        """All terms together."""
        return self.own + self.others + self.types + self.opened + self.longer + self.holes

    @property
    def rounded(self) -> dict[str, int]:
        """The terms in whole GPU-seconds, as they are printed: a printed total is their sum."""
        return {name: round(gpu_s) for name, gpu_s in self.terms.items()}


class PriceRationale(NamedTuple):
    """The price of a placement beside those of the other sets of machines that were priced, cheapest first."""

    job: Job
    cluster: Cluster
    free: FreeMachines
    seconds: float  # that the job is expected to run on one machine
    price: Price
    others: tuple[Price, ...]

    def facts(self, placement: Placement) -> Mapping[str, object]:
        """Return the reasons as plain values."""
        return {**self._free.facts(placement), "price": {"expected_s": self.seconds, **self._price_facts()}}

    def text(self, placement: Placement) -> str:
        """Return the reasons as text."""
        return "\n".join([self._free.text(placement), *self._price_lines()])

    @property
    def _free(self) -> DefaultRationale:
        """What every placement tells: what was free, and the fewest machines possible."""
        return DefaultRationale(self.job, self.cluster, self.free, "")

    def _price_facts(self) -> dict[str, object]:
        return {
            **self._facts_of(self.price),
            "slowdown": self.price.slowdown,
            "slowed_jobs": {job_id: times - 1.0 for job_id, times in self.price.slowed},
            "next_best": [
                {
                    **self._facts_of(each),
                    "more_gpu_s": each.total - self.price.total,
                    "decided_by": _decisive(self.price, each),
                }
                for each in self._other_sets()
            ],
        }

    def _facts_of(self, price: Price) -> dict[str, object]:
        names = self.cluster.node_names
        return {
            "total_gpu_s": price.total,
            "terms_gpu_s": price.terms,
            "why": {name: self._why(name, price) for name, gpu_s in price.terms.items() if gpu_s},
            "gpus_on": {names[machine]: gpus for machine, gpus in price.held},
            "racks": self._racks(price),
            "idle_machines_opened": self._opened(price),
        }

    def _price_lines(self) -> Iterator[str]:
        """Yield the price, its terms and the next best sets of machines."""
        price = self.price
        shown = {name: gpu_s for name, gpu_s in price.rounded.items() if gpu_s}
        sure = "expected" if self.job.duration_s is not None else "estimated"  # from what other jobs took
        on = "one machine" if self.job.speeds is None else "one machine with GPUs of speed 1"
        expected = f"if it takes {self.seconds:,.0f} s on {on}, as {sure}"
        free_of_charge = "" if shown else ": it takes nothing from others, and no machine is in use longer"
        yield f"price: {sum(shown.values()):,} GPU-s {expected}{free_of_charge}"
        for name, gpu_s in shown.items():
            yield f"{gpu_s:+,} GPU-s: {self._why(name, price)}"
        others = self._other_sets()
        for word, each in zip(("next best", "after that"), others, strict=False):
            yield f"{word}: {self._compared(each)}"
        if not others:
            room = "no other machine has room for all of it" if len(price.held) == 1 else "no other set was found"
            yield f"next best: none, {room}"

    def _other_sets(self) -> list[Price]:
        """Return the prices of other sets of machines, cheapest first; one in another order is the same set."""
        found = {frozenset(self.price.held): self.price}
        for each in self.others:
            found.setdefault(frozenset(each.held), each)
        return list(found.values())[1:]

    def _why(self, name: str, price: Price) -> str:
        """Say what a term of a price is for."""
        if name == "own":
            longer = percent(price.slowdown - 1.0, 1)
            return f"crosses {self._where(price)}, which makes it {longer} longer than on one machine"
        if name == "others":
            slowed = [f"{job_id} by {percent(times - 1.0, 1)}" for job_id, times in price.slowed if times > 1.0]
            return f"slows {', '.join(slowed)}" if slowed else "slows jobs that share its links"
        if name == "types":
            return f"has {self._types(price)}, and those of another type would suit it better"
        if name == "opened":
            return f"opens {counted(self._opened(price), 'idle machine')}"
        if name == "longer":
            busy = len(price.held) - self._opened(price)
            stay = "1 machine stays" if busy <= 1 else f"some of {busy} machines stay"
            return f"{stay} in use longer than without it"
        where = "its machine" if len(price.held) == 1 else "its machines"
        return f"what stays free on {where} suits recent sizes of jobs {'worse' if price.holes > 0 else 'better'}"

    def _compared(self, other: Price) -> str:
        """Say what another set of machines would cost, and which term decides against it."""
        more = sum(other.rounded.values()) - sum(self.price.rounded.values())
        what = f"{self._named(other)}: {sum(other.rounded.values()):,} GPU-s"
        term = _decisive(self.price, other)
        if not term:
            return f"{what}, the same; {self._tie(other)}"
        much = f"{more:,} more" if more > 0 else "less than 1 more"
        own, its = self.price.rounded[term], other.rounded[term]
        return f"{what}, {much}; {TERMS[term]} decides ({its:+,} against {own:+,})"

    def _tie(self, other: Price) -> str:
        """Say what decides between equal prices."""
        racks, more = self._racks(self.price), self._racks(other)
        if racks < more:
            return f"the chosen set is in fewer racks ({racks} against {more})"
        if len(self.price.held) < len(other.held):
            return "the chosen set has fewer machines"
        return "the chosen one leaves at least as much room for a larger job"

    def _named(self, price: Price) -> str:
        names = self.cluster.node_names
        some = [names[machine] for machine, _ in price.held[:NAMED_MACHINES]]
        left = len(price.held) - len(some)
        return ", ".join(some) + (f" and {counted(left, 'more machine')}" if left else "")

    def _where(self, price: Price) -> str:
        racks = self._racks(price)
        return f"{racks} racks" if racks > 1 else f"{counted(len(price.held), 'machine')} of one rack"

    def _types(self, price: Price) -> str:
        """Name the types of the GPUs of a set."""
        found = Counter[str]()
        for machine, gpus in price.held:
            found[self.cluster.machines[machine].gpu_type] += gpus
        return " and ".join(counted(gpus, f"{kind} GPU") for kind, gpus in sorted(found.items()))

    def _racks(self, price: Price) -> int:
        return len({self.cluster.rack_of[machine] for machine, _ in price.held})

    def _opened(self, price: Price) -> int:
        """Count the idle machines of a set."""
        idle = reduce(or_, self.free.idle)
        return sum(idle >> machine & 1 for machine, _ in price.held)


class MachineRationale(NamedTuple):
    """The price of one machine beside the next best; made on request, since most jobs are on one machine."""

    job: Job
    cluster: Cluster
    free: FreeMachines
    seconds: float  # that the job is expected to run there
    terms: Sequence[tuple[int, float, float]]  # a machine, what its longer use costs, and what worse holes do

    def facts(self, placement: Placement) -> Mapping[str, object]:
        """Return the reasons as plain values."""
        return self.priced.facts(placement)

    def text(self, placement: Placement) -> str:
        """Return the reasons as text."""
        return self.priced.text(placement)

    @property
    def priced(self) -> PriceRationale:
        """The reasons as of several sets of machines."""
        idle, gpus = reduce(or_, self.free.idle), self.job.gpus
        price, *others = [
            Price(((machine, gpus),), opened=use, holes=holes)
            if idle >> machine & 1
            else Price(((machine, gpus),), longer=use, holes=holes)
            for machine, use, holes in self.terms
        ]
        return PriceRationale(self.job, self.cluster, self.free, self.seconds, price, tuple(others))


def _decisive(chosen: Price, other: Price) -> str:
    """Return the term by which another set costs more than the chosen one; empty if it costs the same."""
    if abs(other.total - chosen.total) <= SAME_GPU_S * max(1.0, abs(chosen.total)):
        return ""
    before = chosen.terms
    return max(other.terms, key=lambda name: other.terms[name] - before[name])
