"""Jobs on one link, with shifts and without: Fig. 2, Fig. 5, Table 2 and Fig. 17."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from cranny.repro.cassini.paper import FIG5_ITERATIONS_MS, FIG5_ROTATION_DEG, FIG17_SNAPSHOTS, TABLE2
from cranny.repro.cassini.setups import LINK_GBPS

Floats = npt.NDArray[np.float64]

JITTER = 0.005  # of computing times; at it the paper's few adjustments can be had (docs/understand/phases.md)
JITTERS = (0.0025, 0.005, 0.02)
SHARES = tuple(np.linspace(0.01, 1.0, 100).tolist())
FIG5_UP_MS = 10.0  # of either job; the paper gives no up phases
SHOWN_S = 1.5  # of a plot of what a link carries


@dataclass(frozen=True, eq=False, slots=True)
class LinkRuns:
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


@dataclass(frozen=True, eq=False, slots=True)
class LinkOutcome:
    """Jobs on a link in one set-up: how well they fit, and their runs without shifts and with them."""

    setup: str
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
    circles: tuple[Circle, ...], gbps: float, setup: str, seeds: int, seconds: float, *, together: bool = False
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
        shifted.append(
            with_agents(_jobs(circles, fit.shifts_s), [True] * len(circles), JITTER, simulate),
        )
    return LinkOutcome(setup, circles, fit, float(np.mean(scores)), LinkRuns.of(without), LinkRuns.of(shifted))


def _jobs(circles: Sequence[Circle], shifts_s: Sequence[float]) -> list[PhasedJob]:
    return [PhasedJob({0: circle}, shift_s) for circle, shift_s in zip(circles, shifts_s, strict=True)]


def _simulated(
    jobs: Sequence[PhasedJob], *, gbps: float, seconds: float, jitter: float, seed: int, hold: bool = True
) -> PhasedRun:
    rng = np.random.default_rng([seed, 1])
    return run_for(jobs, [gbps], seconds, jitter=jitter, rng=rng, hold=hold)


def run_pairs(seeds: int, seconds: float) -> list[LinkOutcome]:
    """Run the two jobs of Fig. 2 in every set-up that makes a difference: they are even as they are."""
    return [run_jobs(*pair_circles(setup), setup, seeds, seconds, together=True) for setup in (GIVEN, H200, BATCH)]


def pair_uses(setup: str = GIVEN) -> tuple[LinkUse, LinkUse]:
    """Return what the link of Fig. 2 carries, without a shift and with it."""
    circles, gbps = pair_circles(setup)
    shifts_s = compatibility(circles, gbps).shifts_s
    found = [
        run_for(_jobs(circles, each), [gbps], SHOWN_S, links=True).links[0] for each in ((0.0, 0.0), shifts_s)
    ]
    return found[0], found[1]


def snapshot_uses(setup: str = GIVEN) -> dict[str, LinkUse]:
    """Return what the link of each snapshot carries with the best shifts (Fig. 15)."""
    found = {}
    for snapshot in TABLE2:
        circles = snapshot_circles(snapshot.number, setup)
        fit = compatibility(circles, LINK_GBPS)
        jobs = _jobs(circles, fit.shifts_s)
        found[f"snapshot {snapshot.number}, score {fit.score:.1f}"] = run_for(
            jobs, [LINK_GBPS], SHOWN_S, links=True
        ).links[0]
    return found


def run_table2(seeds: int, seconds: float) -> dict[int, list[LinkOutcome]]:
    """Run all snapshots in all set-ups."""
    return {
        snapshot.number: [
            run_jobs(snapshot_circles(snapshot.number, setup), LINK_GBPS, setup, seeds, seconds)
            for setup in SETUPS
        ]
        for snapshot in TABLE2
    }


@dataclass(frozen=True, slots=True)
class Adjustments:
    """How often agents bring jobs of a snapshot back in a minute, and what an iteration takes, in those alone."""

    snapshot: int
    jitter: float
    hold: bool
    a_minute: Estimate  # of a job
    slowdown: Estimate


def run_adjustments(seeds: int, seconds: float) -> list[Adjustments]:
    """Simulate agents that keep snapshots 1 to 3 interleaved: by the paper's rule alone, and with paced jobs."""
    found = []
    for number in FIG17_SNAPSHOTS:
        circles = snapshot_circles(number, GIVEN)
        alone_s = np.array([circle.iteration_s for circle in circles])
        shifted = _jobs(circles, compatibility(circles, LINK_GBPS).shifts_s)
        load = max(sum(circle.mean_gbps for circle in circles) / LINK_GBPS, 1.0)
        for hold in (False, True):
            for jitter in JITTERS:
                # The rule alone is about the ideal iteration time; paced jobs need a longer period.
                jobs = [_stretched(job, load) for job in with_periods(shifted, jitter if hold else 0.0)]
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


def _stretched(job: PhasedJob, by: float) -> PhasedJob:
    """Return a job with a longer pacing period: the best that jobs which do not fit on a link can keep."""
    return replace(job, period_s=job.period_s * by, shift_s=job.shift_s * by)


@dataclass(frozen=True, slots=True)
class UnifiedPair:
    """Fig. 5: the perimeter of two jobs, their score as they are, at the paper's rotation, and at the best."""

    perimeter_ms: float
    before: float
    at_papers: float
    best: float
    rotation_deg: float


def run_fig5() -> UnifiedPair:
    """Put two jobs with iterations of 40 and 60 ms on one circle."""
    circles = tuple(Circle(each / 1e3, ((0.0, FIG5_UP_MS / 1e3, LINK_GBPS),)) for each in FIG5_ITERATIONS_MS)
    fit = compatibility(circles, LINK_GBPS)
    perimeter_s = fit.unified.perimeter_s

    def score(first_deg: float) -> float:
        """Return the score with the first job turned so far, counter-clockwise."""
        shift_s = first_deg / DEGREES * perimeter_s % circles[0].iteration_s
        return curve(circles, (shift_s, 0.0), fit.unified).score(LINK_GBPS)

    rotations = fit.rotations_deg
    return UnifiedPair(
        perimeter_s * 1e3, score(0.0), score(FIG5_ROTATION_DEG), fit.score, rotations[0] - rotations[1]
    )
