"""All experiments on all sets of throughputs that fit, and what their values come to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from cranny.policies._shared.heterogeneous.problem import Floats
from cranny.report.confidence import Estimate, estimate
from cranny.repro.experiment import run_cells
from cranny.repro.has import resets, static
from cranny.repro.has.paper import PAPER, TITLES, ValueKey
from cranny.repro.has.static import FULL, QUICK, Effort, Value
from cranny.repro.has.throughputs import ThroughputFits, fits
from cranny.repro.page import Record
from cranny.run import Progress

EXPERIMENTS: Mapping[str, Callable[[Floats, Effort], Iterator[Value]]] = {
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
    "power": resets.by_power,
}


class HasResults(NamedTuple):
    """The values of each fit, by figure, measure, setting and scheme."""

    fits: ThroughputFits
    values: Mapping[ValueKey, tuple[float, ...]]
    rounds: int

    def mean(self, figure: str, measure: str, setting: str, scheme: str) -> float:
        """Return a value, on average over the fits."""
        return self.at(ValueKey(figure, measure, setting, scheme)).mean

    def at(self, key: ValueKey) -> Estimate:
        """Return a value with its confidence interval."""
        return estimate(self.values[key])

    def read(
        self, figure: str, measure: str, setting: str | tuple[str, ...], scheme: str | tuple[str, ...]
    ) -> list[float]:
        """Return means over the fits in one setting, several or all of them (*), for one scheme or several."""
        settings = (
            self.of(figure, measure) if setting == "*" else (setting,) if isinstance(setting, str) else setting
        )
        schemes = (scheme,) if isinstance(scheme, str) else scheme
        return [self.mean(figure, measure, here, each) for here in settings for each in schemes]

    def measures(self, figure: str) -> list[str]:
        """Return what a figure measures."""
        return list(dict.fromkeys(key.measure for key in self.values if key.figure == figure))

    def of(self, figure: str, measure: str) -> dict[str, dict[str, Estimate]]:
        """Return the values of a figure by setting and scheme."""
        table: dict[str, dict[str, Estimate]] = {}
        for key, values in self.values.items():
            if (key.figure, key.measure) == (figure, measure):
                table.setdefault(key.setting, {})[key.scheme] = estimate(values)
        return table

    def records(self) -> list[Record]:
        """Return a row for each value, for files."""
        return [
            {
                **key._asdict(),
                "title": TITLES[key.figure],
                "paper": PAPER.get(key),
                "ours": self.at(key).mean,
                "ours_half_width_95": self.at(key).half,
                "least": min(values),
                "most": max(values),
            }
            for key, values in self.values.items()
        ]


def run_experiments(
    draws: int, processes: int, *, quick: bool = False, progress: Progress | None = None
) -> HasResults:
    """Run every experiment on every fit."""
    effort, fitted = QUICK if quick else FULL, fits(draws)
    cells = [(fit, name) for fit in range(draws) for name in EXPERIMENTS]
    found = run_cells(partial(run_experiment, fitted.rates, effort), cells, processes, progress)
    values: dict[ValueKey, tuple[float, ...]] = {}
    for *where, value in chain(static.example(), *found.values()):
        values[ValueKey(*where)] = (*values.get(ValueKey(*where), ()), value)
    order = list(TITLES)
    by_figure = dict(sorted(values.items(), key=lambda item: order.index(item[0].figure)))
    return HasResults(fitted, by_figure, effort.rounds)


def run_experiment(fitted: Sequence[Floats], effort: Effort, cell: tuple[int, str]) -> list[Value]:
    """Run one experiment on one fit, by its number; what compiles is called once before it is timed."""
    rates, experiment = fitted[cell[0]], cell[1]
    if experiment in ("small", "workers"):
        _ = [*static.all_categories(rates, QUICK), *static.by_beta(rates, QUICK)]
    return list(EXPERIMENTS[experiment](rates, effort))
