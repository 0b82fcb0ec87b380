"""Jobs on one link, with shifts and without: Fig. 2, Fig. 5, Table 2 and Fig. 17."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cranny.model.circle import DEGREES, Circle
from cranny.network.interleave.compatibility import Compatibility, compatibility
from cranny.network.interleave.unified_circle import curve
from cranny.network.phases.outcome import JobOutcome, LinkUse, PhasedRun
from cranny.network.phases.pacing_period import with_agents, with_periods
from cranny.network.phases.phased_run import run_for
from cranny.network.phases.segments import PhasedJob
from cranny.report.confidence import Estimate, estimate
from cranny.repro.cassini.link_shapes import BATCH, GIVEN, H200, SETUPS, pair_circles, snapshot_circles
from cranny.repro.cassini.paper import TABLE2, TEXT
from cranny.repro.cassini.setups import JITTER, LINK_GBPS

Floats = npt.NDArray[np.float64]

JITTERS = (0.0025, 0.005, 0.02)
SNAPSHOTS = (1, 2, 3)  # of Table 2, that Fig. 17 is about
SHARES = tuple(np.linspace(0.01, 1.0, 100).tolist())
FIG5_UP_MS = 10.0  # of either job; the paper gives no up phases
SHOWN_S = 1.5  # of a plot of what a link carries


class LinkRuns(NamedTuple):
    """Runs of the same jobs in one way, (seeds, jobs) each."""

    mean_s: Floats
    p90_s: Floats
    above_gbit: Floats  # in an iteration
    adjustments: Floats  # in a minute
    quantiles_s: tuple[float, ...]  # at `SHARES`, of the first job with the first seed

    @classmethod
    def of(cls, runs: Sequence[PhasedRun]) -> "LinkRuns":
        """Gather several runs of the same jobs."""

        def each(measure: Callable[[JobOutcome], float]) -> Floats:
            return np.array([[measure(outcome) for outcome in run.outcomes] for run in runs])

        first = runs[0].outcomes[0]
        return cls(
            each(lambda outcome: outcome.mean_s),
            each(lambda outcome: outcome.quantile_s(0.9)),
            each(lambda outcome: outcome.above_gbit_per_iteration),
            each(lambda outcome: outcome.adjustments_per_min),
            tuple(first.quantile_s(share) for share in SHARES),
        )


class LinkOutcome(NamedTuple):
    """Jobs on a link in one set-up: how well they fit, and their runs without shifts and with them."""

    circles: tuple[Circle, ...]
    fit: Compatibility
    unshifted: float  # the mean score of jobs that start at random
    without: LinkRuns
    shifted: LinkRuns

    @property
    def down_s(self) -> Floats:
        """Seconds that each job computes only, (jobs,)."""
        return np.array([circle.down_s for circle in self.circles])

    def gain(self) -> Estimate:
        """Return by what factor all jobs together iterate faster with shifts."""
        return _ratio(self.without.mean_s.sum(axis=1), self.shifted.mean_s.sum(axis=1))

    def p90_gain(self) -> Estimate:
        """Return the same for the 90th percentiles of each job."""
        return _ratio(self.without.p90_s.mean(axis=1), self.shifted.p90_s.mean(axis=1))

    def communication_gain(self) -> Estimate:
        """Return by what factor all jobs together spend less time beyond computing."""
        before, after = ((side.mean_s - self.down_s).sum(axis=1) for side in (self.without, self.shifted))
        return _ratio(before, after)

    def communication_ms(self) -> tuple[list[float], list[float]]:
        """Return what an iteration of each job takes beyond computing, with shifts and without."""
        with_ms, without_ms = (
            ((side.mean_s.mean(axis=0) - self.down_s) * 1e3).tolist() for side in (self.shifted, self.without)
        )
        return with_ms, without_ms


def _ratio(before: Floats, after: Floats) -> Estimate:
    return estimate((before / after).tolist())


def run_jobs(
    circles: tuple[Circle, ...], gbps: float, seeds: int, seconds: float, *, together: bool = False
) -> LinkOutcome:
    """Run jobs with the best shifts, and without: from random starts, or all at once."""
    fit = compatibility(circles, gbps)
    without, shifted, scores = [], [], []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 0])
        starts_s = [0.0 if together else float(rng.random()) * circle.iteration_s for circle in circles]
        scores.append(curve(circles, starts_s, fit.unified).score(gbps))
        simulate = partial(_simulated, gbps=gbps, seconds=seconds, jitter=JITTER, seed=seed)
        without.append(simulate(_jobs(circles, starts_s)))
        jobs = _jobs(circles, fit.shifts_s)
        shifted.append(with_agents(jobs, [True] * len(circles), [gbps], JITTER, simulate).run)
    return LinkOutcome(circles, fit, float(np.mean(scores)), LinkRuns.of(without), LinkRuns.of(shifted))


def _jobs(circles: Sequence[Circle], shifts_s: Sequence[float]) -> list[PhasedJob]:
    return [PhasedJob({0: circle}, shift_s) for circle, shift_s in zip(circles, shifts_s, strict=True)]


def _simulated(
    jobs: Sequence[PhasedJob], *, gbps: float, seconds: float, jitter: float, seed: int, hold: bool = True
) -> PhasedRun:
    rng = np.random.default_rng([seed, 1])
    return run_for(jobs, [gbps], seconds, jitter=jitter, rng=rng, hold=hold)


def run_pairs(seeds: int, seconds: float) -> dict[str, LinkOutcome]:
    """Run the two jobs of Fig. 2 in every set-up that makes a difference: they are even as they are."""
    setups = (GIVEN, H200, BATCH)
    return {setup: run_jobs(*pair_circles(setup), seeds, seconds, together=True) for setup in setups}


def link_use(circles: Sequence[Circle], gbps: float, shifts_s: Sequence[float]) -> LinkUse:
    """Return what a link carries of jobs with some shifts."""
    return run_for(_jobs(circles, shifts_s), [gbps], SHOWN_S, links=True).links[0]


def snapshot_uses() -> dict[str, LinkUse]:
    """Return what the link of each snapshot carries with the best shifts (Fig. 15)."""
    found = {}
    for snapshot in TABLE2:
        circles = snapshot_circles(snapshot.number, GIVEN)
        fit = compatibility(circles, LINK_GBPS)
        title = f"snapshot {snapshot.number}, score {fit.score:.1f}"
        found[title] = link_use(circles, LINK_GBPS, fit.shifts_s)
    return found


def run_table2(seeds: int, seconds: float) -> dict[int, dict[str, LinkOutcome]]:
    """Run all snapshots in all set-ups."""
    return {
        snapshot.number: {
            setup: run_jobs(snapshot_circles(snapshot.number, setup), LINK_GBPS, seeds, seconds)
            for setup in SETUPS
        }
        for snapshot in TABLE2
    }


class Adjustments(NamedTuple):
    """How often agents bring jobs of a snapshot back in a minute, and what an iteration takes, in those alone."""

    snapshot: int
    jitter: float
    hold: bool
    a_minute: Estimate  # of a job
    slowdown: Estimate


def run_adjustments(seeds: int, seconds: float) -> list[Adjustments]:
    """Simulate agents that keep snapshots 1 to 3 interleaved: by the paper's rule alone, and with paced jobs."""
    found = []
    for number in SNAPSHOTS:
        circles = snapshot_circles(number, GIVEN)
        alone_s = np.array([circle.iteration_s for circle in circles])
        shifted = _jobs(circles, compatibility(circles, LINK_GBPS).shifts_s)
        load = max(sum(circle.mean_gbps for circle in circles) / LINK_GBPS, 1.0)
        for hold in (False, True):
            for jitter in JITTERS:
                # The rule alone is about the ideal iteration time; paced jobs need a longer period.
                # If jobs do not fit on a link, a period that is as much longer is the best that they can keep.
                jobs = [
                    replace(job, period_s=job.period_s * load, shift_s=job.shift_s * load)
                    for job in with_periods(shifted, jitter if hold else 0.0)
                ]
                runs = [
                    _simulated(jobs, gbps=LINK_GBPS, seconds=seconds, jitter=jitter, seed=seed, hold=hold)
                    for seed in range(seeds)
                ]
                side = LinkRuns.of(runs)
                found.append(
                    Adjustments(
                        number,
                        jitter,
                        hold,
                        estimate(side.adjustments.mean(axis=1).tolist()),
                        estimate((side.mean_s / alone_s).mean(axis=1).tolist()),
                    )
                )
    return found


class UnifiedPair(NamedTuple):
    """Fig. 5: the perimeter of two jobs, their score as they are, at the paper's rotation, and at the best."""

    perimeter_ms: float
    before: float
    at_papers: float
    best: float


def run_fig5() -> UnifiedPair:
    """Put two jobs with iterations of 40 and 60 ms on one circle."""
    paper = TEXT.claims["fig5"].numbers
    circles = tuple(
        Circle(paper[each] / 1e3, ((0.0, FIG5_UP_MS / 1e3, LINK_GBPS),)) for each in ("first_ms", "second_ms")
    )
    fit = compatibility(circles, LINK_GBPS)
    perimeter_s = fit.unified.perimeter_s

    def score(first_deg: float) -> float:
        """Return the score with the first job turned so far, counter-clockwise."""
        shift_s = first_deg / DEGREES * perimeter_s % circles[0].iteration_s
        return curve(circles, (shift_s, 0.0), fit.unified).score(LINK_GBPS)

    return UnifiedPair(perimeter_s * 1e3, score(0.0), score(paper["rotation_deg"]), fit.score)
