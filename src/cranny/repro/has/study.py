"""All experiments over all fits, and what they found on average."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cranny.policies._shared.heterogeneous.problem import Floats
from cranny.process_pool import run_each
from cranny.report.confidence import Estimate, estimate
from cranny.repro.has import resets, static
from cranny.repro.has.fit import fits
from cranny.repro.has.static import FULL, QUICK, Effort, Values
from cranny.repro.has.values import PAPER, TITLES, At

EXPERIMENTS: Mapping[str, Callable[[Floats, Effort], Values]] = {
    "categories": static.all_categories,
    "small": static.small,
    "alpha": static.by_alpha,
    "beta": static.by_beta,
    "heterogeneity": static.by_heterogeneity,
    "errors": static.with_errors,
    "workers": static.by_workers,
    "resets": resets.with_resets,
    "scale": resets.by_scale,
    "cost": resets.by_cost,
}


@dataclass(frozen=True, slots=True)
class Study:
    """What was found for each fit, and the values of the paper."""

    rates: Sequence[Floats]  # of the fits
    found: Mapping[At, tuple[float, ...]]
    rounds: int

    def mean(self, figure: str, measure: str, setting: str, scheme: str) -> float:
        """Return a value, on average over the fits."""
        return self.at(At(figure, measure, setting, scheme)).mean

    def at(self, place: At) -> Estimate:
        """Return a value with its confidence interval."""
        return estimate(self.found[place])

    def measures(self, figure: str) -> list[str]:
        """Return what a figure measures."""
        return list(dict.fromkeys(at.measure for at in self.found if at.figure == figure))

    def of(self, figure: str, measure: str) -> dict[str, dict[str, At]]:
        """Return the places of a figure by setting and scheme."""
        table: dict[str, dict[str, At]] = {}
        for at in self.found:
            if (at.figure, at.measure) == (figure, measure):
                table.setdefault(at.setting, {})[at.scheme] = at
        return table

    def records(self) -> list[dict[str, str | float | None]]:
        """Return a row for each value, for files."""
        return [
            {
                **at._asdict(),
                "title": TITLES[at.figure],
                "paper": PAPER.get(at),
                "ours": self.at(at).mean,
                "ours_half_width_95": self.at(at).half,
                "least": min(values),
                "most": max(values),
            }
            for at, values in self.found.items()
        ]


def run_study(
    draws: int, processes: int, *, quick: bool = False, progress: Callable[[int], None] | None = None
) -> Study:
    """Run every experiment on every fit."""
    effort = QUICK if quick else FULL
    rates = fits(draws)
    calls = [(name, each, effort) for each in rates for name in EXPERIMENTS]
    values = run_each(run_one, calls, processes, progress)
    found: dict[At, tuple[float, ...]] = {at: (value,) for at, value in static.example().items()}
    for each in values:
        for at, value in each.items():
            found[at] = (*found.get(at, ()), value)
    order = {figure: at for at, figure in enumerate(TITLES)}
    return Study(rates, dict(sorted(found.items(), key=lambda item: order[item[0].figure])), effort.rounds)


def run_one(name: str, rates: Floats, effort: Effort) -> Values:
    """Run one experiment on one fit; what compiles is called once before it is timed."""
    if name in ("small", "workers"):
        static.all_categories(rates, QUICK)
        static.by_beta(rates, QUICK)
    return EXPERIMENTS[name](rates, effort)


def steps(draws: int) -> int:
    """Return how many calls there will be."""
    return draws * len(EXPERIMENTS)
