"""Plots in the form that CASSINI's paper has them: links over time, CDFs of iteration times, bars."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cranny.network.phases.outcome import LinkUse
from cranny.report.confidence import Estimate
from cranny.report.styles import HUES, VERMILION
from cranny.repro.cassini.link_shapes import GIVEN, pair_circles
from cranny.repro.cassini.links import JITTERS, SHARES, Adjustments, LinkOutcome, link_use, snapshot_uses
from cranny.repro.cassini.paper import TEXT, CassiniTrace
from cranny.repro.cassini.precision import AnglePrecision
from cranny.repro.cassini.replays import SHOWN, CassiniReplays
from cranny.repro.cassini.setups import LINK_GBPS
from cranny.repro.plots import STYLES, Axes, Figure, canvas, draw_bars, draw_estimates, legend

RED, GREY = "#c8392f", "#b9b6b0"
MARKED = ("themis", "themis+cassini", "pollux", "pollux+cassini")
DRAWN = (*MARKED, "ideal", "random")


def draw_pair(outcome: LinkOutcome) -> Figure:
    """Draw Fig. 2: the link without a shift and with it, and the CDF of iteration times."""
    figure, axes = canvas(3, panel=(3.6, 2.9), across=3)
    circles, gbps = pair_circles(GIVEN)
    _use(axes[0], link_use(circles, gbps, (0.0, 0.0)), gbps, "(b) no shift")
    _use(axes[1], link_use(circles, gbps, outcome.fit.shifts_s), gbps, "(c) shifted")
    for side, label, scheme in (
        (outcome.without, "started together", "themis"),
        (outcome.shifted, "shifted, paced", "themis+cassini"),
    ):
        colour, width, _ = STYLES[scheme]
        times_ms = [each * 1e3 for each in side.quantiles_s]
        axes[2].plot([times_ms[0], *times_ms], [0.0, *SHARES], color=colour, linewidth=width, label=label)
    axes[2].set(title="(d) first job", xlabel="iteration time, ms", ylabel="CDF", ylim=(0, 1.02))
    return legend(figure, axes)


def draw_uses() -> Figure:
    """Draw Fig. 15: what is requested of links and what they carry, a panel a snapshot."""
    uses = snapshot_uses()
    figure, axes = canvas(len(uses), panel=(4.6, 2.3))
    for axis, (title, use) in zip(axes, uses.items(), strict=True):
        _use(axis, use, LINK_GBPS, title)
    return legend(figure, axes)


def _use(axis: Axes, use: LinkUse, gbps: float, title: str) -> None:
    """Draw what a link carries, and in red what was requested beyond that."""
    at_ms = use.at_s * 1e3
    axis.fill_between(at_ms, use.carried_gbps, step="post", color=HUES[0].light, alpha=0.7, label="carried")
    above: dict[str, Any] = {"color": RED, "alpha": 0.35, "linewidth": 0, "label": "requested above that"}
    axis.fill_between(at_ms, use.carried_gbps, use.demand_gbps, step="post", **above)
    axis.axhline(gbps, color=GREY, linewidth=1.0)
    axis.set(title=title, xlabel="time, ms", ylabel="Gbps")


def draw_cdfs(replays: CassiniReplays, trace: CassiniTrace) -> Figure:
    """Draw the CDF of iteration times of every scheme of the paper, as they are and over those alone."""
    figure, axes = canvas(2)
    measures = {"quantiles_s": "iteration time, s", "quantiles_over_alone": "iteration time, alone = 1"}
    for axis, (measure, xlabel) in zip(axes, measures.items(), strict=True):
        longest = 0.0
        for scheme in DRAWN:
            colour, width, stroke = STYLES[scheme]
            values = replays.pooled(trace, scheme, measure)
            if values:
                shares = np.arange(1, len(values) + 1) / len(values)
                axis.plot(values, shares, stroke, color=colour, linewidth=width, label=TEXT.names[scheme])
                longest = max(longest, values[int(0.99 * len(values))])
        axis.set(title=trace.title, xlabel=xlabel, ylabel="CDF", ylim=(0, 1.02))
        axis.set_xlim(right=longest * 1.05)
    return legend(figure, axes)


def draw_marks(replays: CassiniReplays, trace: CassiniTrace) -> Figure:
    """Draw what is requested above capacity in an iteration of each model."""
    found = {scheme: replays.marks(trace, scheme) for scheme in MARKED if replays.of(trace, scheme)}
    models = sorted({model for marks in found.values() for model in marks if model})
    bars = {
        model: {scheme: Estimate(marks.get(model, 0.0), None) for scheme, marks in found.items()}
        for model in models
    }
    ylabel = "Gbit above capacity\nin an iteration"
    return draw_bars({trace.title: bars}, ylabel, TEXT.names, xlabel="", wide=True, fontsize=8, rotation=15)


def draw_iterations(replays: CassiniReplays, trace: CassiniTrace) -> Figure:
    """Draw the iteration times of all jobs over time, a panel a scheme."""
    intervals = {scheme: replays.of(trace, scheme)[0].outcomes for scheme in SHOWN}
    models = sorted({model for each in intervals.values() for model, *_ in each})
    colours = {model: HUES[place % len(HUES)].light for place, model in enumerate(models)}
    figure, axes = canvas(len(SHOWN), panel=(9.2, 2.4), across=1)
    for axis, (scheme, each) in zip(axes, intervals.items(), strict=True):
        for model, from_s, to_s, mean_s in each:
            stroke = "-" if models.index(model) < len(HUES) else "--"
            line: dict[str, Any] = {"color": colours[model], "linewidth": 1.6, "label": model}
            axis.plot([from_s / 60, to_s / 60], [mean_s * 1e3] * 2, stroke, **line)
        axis.set(title=TEXT.names[scheme], xlabel="minutes", ylabel="iteration, ms", ylim=(0, None))
    return legend(figure, axes)


def draw_adjustments(found: Sequence[Adjustments]) -> Figure:
    """Draw Fig. 17: adjustments a minute by the paper's rule alone, and how long iterations of paced jobs take."""
    figure, axes = canvas(2)
    numbers = sorted({each.snapshot for each in found})
    for place, jitter in enumerate(JITTERS):
        alone, paced = (
            [each for each in found if each.jitter == jitter and each.hold == hold] for hold in (False, True)
        )
        at = [number + (place - 1) * 0.26 for number in range(len(numbers))]
        for axis, values in (
            (axes[0], [each.a_minute for each in alone]),
            (axes[1], [each.slowdown for each in paced]),
        ):
            draw_estimates(axis, at, values, 0.26, HUES[place].light, f"jitter {100 * jitter:g} %")
    most = TEXT.claims["fig17"].numbers["paper"]
    axes[0].axhline(most, color=RED, linewidth=1.0, linestyle=":", label="the paper: below this")
    for axis in axes:
        axis.set_xticks(range(len(numbers)), [f"snapshot {number}" for number in numbers])
    axes[0].set(title="the 5 % rule alone", ylabel="adjustments of a job a minute", yscale="symlog")
    axes[1].set(title="paced", ylabel="iteration time, alone = 1", ylim=(0.9, None))
    return legend(figure, axes)


def draw_precision(found: Sequence[AnglePrecision]) -> Figure:
    """Draw Fig. 18: time, and the share of links whose shifts are right, by precision."""
    figure, (axis,) = canvas(1, panel=(5.6, 3.2))
    degrees = [each.degrees for each in found]
    axis.plot(degrees, [each.time_ms.mean for each in found], "o-", color=HUES[0].light, label="CPU time, ms")
    axis.set(xlabel="precision, degrees", ylabel="CPU time of a link, ms", xscale="log", yscale="log")
    axis.set_xticks(degrees, [f"{each:g}" for each in degrees])
    axis.minorticks_off()
    axis.axvline(TEXT.claims["fig18"].numbers["precision_deg"], color=GREY, linewidth=1.0)
    other = axis.twinx()
    other.plot(
        degrees, [100 * each.right for each in found], "s--", color=VERMILION.light, label="right shifts, %"
    )
    other.set(ylabel="links whose shifts are right, %", ylim=(0, 105))
    return legend(figure, [axis, other])
