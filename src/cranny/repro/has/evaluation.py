"""The evaluation of HAS and JPS put together: facts, claims, tables and plots of what was run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.has.claims import claims, left_open
from cranny.repro.has.paper import ART, FAIR, JCT, PAPER, PLOTTED, TEXT, TITLES, ValueKey
from cranny.repro.has.results import HasResults
from cranny.repro.has.static import scores_of
from cranny.repro.has.throughputs import GPU_TYPES, MODELS
from cranny.repro.number_format import plain
from cranny.repro.page import Plot, Reproduction, Section
from cranny.repro.plots import Figure, Line, draw_bars, draw_lines

NOTE = "Means over the fits; in brackets what the paper states."
OWN = "Means over the fits; the paper states no value."


def reproduction(results: HasResults, quick: str = "") -> Reproduction:
    """Make tables, claims and plots of the results; `quick` says how much was run, if too little for verdicts."""
    keys = [(figure, measure) for figure in TITLES for measure in results.measures(figure)]
    sheets = {key: _sheet(results, *key) for key in keys}
    sections = [
        Section(
            f"{figure}: {title}",
            [sheet for key, sheet in sheets.items() if key[0] == figure],
            _plots(results, figure),
        )
        for figure, title in TITLES.items()
    ]
    throughputs = [
        {name: dict(zip(GPU_TYPES, row, strict=True)) for name, row in zip(MODELS, each.tolist(), strict=True)}
        for each in results.fits.rates
    ]
    values = results.records()
    sections[0] = replace(sections[0], rows={"values": values})
    stated = {(key.figure, key.measure) for key in PAPER}
    brief = [sheet for key, sheet in sheets.items() if key in stated]
    found = {"throughputs": throughputs, "values": values}
    ranges = []
    for name, low, high in zip(
        MODELS, np.min(results.fits.rates, axis=0), np.max(results.fits.rates, axis=0), strict=True
    ):
        kinds = [f"{kind} {a:.0f} to {b:.0f}" for kind, a, b in zip(GPU_TYPES, low, high, strict=True)]
        ranges.append(f"{name} {', '.join(kinds)}")
    said = {
        "sets": len(results.fits.rates),
        "drawn": len(results.fits.drawn),
        "ranges": "; ".join(ranges),
        "rounds": results.rounds,
    }
    facts = TEXT.say("cluster", "throughputs", "rounds", "resets", "proof", **said)
    return Reproduction(TEXT, facts, claims(results), sections, found, brief, left_open(results), quick)


def _sheet(results: HasResults, figure: str, measure: str) -> TextTable:
    """Show a measure of a figure: a row a setting, a column a scheme, the paper's value in brackets."""
    table = results.of(figure, measure)
    schemes = list(dict.fromkeys(scheme for row in table.values() for scheme in row))
    write = _seconds if measure == ART else "{:,.1f}".format if figure == "Table II" else plain
    cells, known = [], False
    for setting, row in table.items():
        papers = {scheme: PAPER.get(ValueKey(figure, measure, setting, scheme)) for scheme in row}
        stated = {scheme: f" ({write(value)})" for scheme, value in papers.items() if value is not None}
        known = known or bool(stated)
        ours = {scheme: write(value.mean) for scheme, value in row.items()}
        cells.append([ours[each] + stated.get(each, "") if each in ours else MISSING for each in schemes])
    names, head = list(table), schemes
    if len(schemes) > len(table):  # the narrower way round
        names, head, cells = schemes, list(table), [list(column) for column in zip(*cells, strict=True)]
    note = "" if figure == "Table II" else NOTE if known else OWN
    if measure == ART:
        note += " CPU time, the shortest of several runs; the paper does not name its machine."
    rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
    return TextTable(f"{figure}, {TITLES[figure]}: {measure}", note, ("", *head), rows)


def _seconds(value: float) -> str:
    """Write a running time in the unit that suits it."""
    for size, unit in ((3600.0, "h"), (1.0, "s")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{1e3 * value:.3g} ms"


def _plots(results: HasResults, figure: str) -> dict[str, Plot]:
    """Return the plots of what a figure of the paper shows, by the stem of their files."""
    stem = figure.lower().replace(". ", "").replace(" ", "-")
    if figure in ("Fig. 4", "Fig. 5", "Fig. 6"):
        return {stem: partial(_categories, results, figure)}
    if figure == "Fig. 13":
        return {stem: partial(_trade_off, results)}
    measures = PLOTTED.get(figure, ())
    if len(measures) > 1 and TEXT.figures[figure].axis:
        return {stem: partial(_lines, results, figure, measures)}
    return {  # a group of bars a setting
        f"{stem}-{number}": partial(
            draw_bars, {figure: results.of(figure, measure)}, measure, TEXT.names, xlabel="", wide=True
        )
        for number, measure in enumerate(measures)
    }


def _categories(results: HasResults, figure: str) -> Figure:
    """Draw a value of every category of the first fit."""
    column = 1 if figure == "Fig. 5" else 0
    panels = {}
    for workers in (15, 30):
        values = scores_of(results.fits.rates[0], workers, prioritised=figure == "Fig. 6")[:, column].tolist()
        panels[f"K = {workers}"] = [Line("has", range(1, len(values) + 1), values)]
    ylabel = FAIR if column else JCT
    return draw_lines(panels, ylabel, TEXT.names, xlabel="category, first fit", unit_s=1.0)


def _lines(results: HasResults, figure: str, measures: Sequence[str]) -> Figure:
    """Draw measures over what is varied, a panel each, a line a scheme."""
    panels: dict[str, list[Line]] = {}
    for measure in measures:
        table = results.of(figure, measure)
        panels[measure] = []
        for scheme in dict.fromkeys(scheme for row in table.values() for scheme in row):
            points = {float(setting): row[scheme].mean for setting, row in table.items() if scheme in row}
            panels[measure].append(Line(scheme, list(points), list(points.values())))
    return draw_lines(panels, "", TEXT.names, xlabel=TEXT.figures[figure].axis, unit_s=1.0)


def _trade_off(results: HasResults) -> Figure:
    """Draw what fairness costs as beta goes from 1 to 0, and the same without the last step."""
    table = results.of("Fig. 13", JCT)
    panels: dict[str, list[Line]] = {"beta from 1 to 0": [], "beta from 1 to 0.1": []}
    lowest_s = min(value.mean for value in table["1"].values())
    for scheme in table["1"]:
        fairness = [results.mean("Fig. 13", FAIR, beta, scheme) for beta in table]
        more = [100 * (row[scheme].mean / lowest_s - 1) for row in table.values()]
        for title, first in zip(panels, (0, 1), strict=True):
            panels[title].append(Line(scheme, fairness[first:], more[first:]))
    return draw_lines(panels, "mean JCT over the lowest, %", TEXT.names, xlabel=FAIR, unit_s=1.0)
