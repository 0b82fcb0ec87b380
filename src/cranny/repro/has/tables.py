"""Tables: a row a setting, a column a scheme, the paper's value in brackets."""

from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.has.study import Study
from cranny.repro.has.values import ART, PAPER, TITLES, At
from cranny.repro.wording import plain

NOTE = "Means over the fits; in brackets what the paper states."
OWN = "Means over the fits; the paper states no value."


def sheets(study: Study, figure: str) -> list[TextTable]:
    """Return the tables of a figure, one for each measure."""
    return [_sheet(study, figure, measure) for measure in study.measures(figure)]


def _sheet(study: Study, figure: str, measure: str) -> TextTable:
    table = study.of(figure, measure)
    schemes = list(dict.fromkeys(scheme for row in table.values() for scheme in row))
    cells = [
        [_cell(study, row[scheme]) if scheme in row else MISSING for scheme in schemes] for row in table.values()
    ]
    names, head = list(table), schemes
    if len(schemes) > len(table):  # the narrower way round
        names, head, cells = schemes, list(table), [list(column) for column in zip(*cells, strict=True)]
    rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
    stated = any(at in PAPER for row in table.values() for at in row.values())
    note = "" if figure == "Table II" else NOTE if stated else OWN
    if measure == ART:
        note += " CPU time, the shortest of several runs; the paper does not name its machine."
    title = f"{figure}, {TITLES[figure]}: {measure}"
    return TextTable(title, note, ("", *head), rows)


def _cell(study: Study, at: At) -> str:
    """Write a value, and the paper's behind it."""
    write = seconds if at.measure == ART else tenths if at.figure == "Table II" else plain
    text = write(study.at(at).mean)
    return f"{text} ({write(PAPER[at])})" if at in PAPER else text


def tenths(value: float) -> str:
    """Write a number to the digit that the paper gives."""
    return f"{value:,.1f}"


def seconds(value: float) -> str:
    """Write a running time in the unit that suits it."""
    for size, unit in ((3600.0, "h"), (1.0, "s")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{1e3 * value:.3g} ms"


def head_sheets(study: Study) -> list[TextTable]:
    """Return the tables for which the paper states values."""
    stated = {(at.figure, at.measure) for at in PAPER}
    return [
        _sheet(study, figure, measure)
        for figure in TITLES
        for measure in study.measures(figure)
        if (figure, measure) in stated
    ]
