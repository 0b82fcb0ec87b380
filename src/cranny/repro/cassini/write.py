"""What goes to the folder: tables as CSV and JSON, pictures, and the page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cranny.report.text_table import TextTable
from cranny.repro.cassini import claims as say
from cranny.repro.cassini import pictures as draw
from cranny.repro.cassini import tables as show
from cranny.repro.cassini.links import Adjusting, Outcome, Unifying, pair_uses, snapshot_uses
from cranny.repro.cassini.method import facts
from cranny.repro.cassini.precision import Precision
from cranny.repro.cassini.setup import LINK_GBPS
from cranny.repro.cassini.shapes import GIVEN, pair_circles
from cranny.repro.cassini.study import GAP, SHOWN, Study
from cranny.repro.claim import Claim, sum_up
from cranny.repro.files import write_csv, write_json
from cranny.repro.page import Section, write_page
from cranny.version import VERSION


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was found; what was not asked for is empty."""

    seeds: int  # of jobs on one link
    pairs: Sequence[Outcome] = ()
    fig5: Unifying | None = None
    table2: Mapping[int, Sequence[Outcome]] = field(default_factory=dict)
    adjusting: Sequence[Adjusting] = ()
    precision: Sequence[Precision] = ()
    study: Study | None = None

    @property
    def claims(self) -> list[Claim]:
        """Return what holds and what does not."""
        made: list[Claim | None] = []
        if self.pairs:
            made.append(say.pair_claim(self.pairs))
        if self.fig5 is not None:
            made.append(say.fig5_claim(self.fig5))
        if self.study is not None:
            faster = show.faster(self.study)
            made += [*say.gain_claims(self.study, faster), say.mark_claim(show.fewer(self.study))]
        if self.table2:
            made += say.table2_claims(self.table2)
        if self.adjusting:
            made.append(say.adjusting_claim(self.adjusting))
        if self.precision:
            made.append(say.precision_claim(self.precision))
        if self.study is not None:
            made += [
                say.gap_claim(self.study, faster),
                say.alike_claim(faster),
                say.host_claim(self.study, faster),
                say.variant_claim(self.study),
            ]
        return [claim for claim in (*made, say.untested()) if claim is not None]

    @property
    def facts(self) -> list[str]:
        """Say how it was done."""
        links = bool(self.pairs or self.table2 or self.adjusting)
        return facts(self.study, links=links, seeds=self.seeds)

    def sheets(self) -> list[TextTable]:
        """Return all tables, figure after figure."""
        return [sheet for section in self.sections(None) for sheet in section.sheets]

    def told(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "paper": "CASSINI, NSDI 2024",
            "version": VERSION,
            "how": self.facts,
            "claims": [asdict(claim) for claim in self.claims],
            "traces": show.records(self.study) if self.study is not None else [],
            "table2": _table2(self.table2),
            "tables": [asdict(sheet) for sheet in self.sheets()],
        }

    def sections(self, folder: Path | None) -> list[Section]:
        """Return the parts of the page; without a folder nothing is drawn."""
        made = []
        if self.pairs:
            made.append(_section("Fig. 2: two jobs on a link", show.pair_sheet(self.pairs)))
            if folder is not None:
                given = next(one for one in self.pairs if one.setup == GIVEN)
                made[-1] = _with(
                    made[-1], draw.draw_pair(pair_uses(), pair_circles(GIVEN)[1], given, folder / "fig2")
                )
        if self.fig5 is not None:
            made.append(_section("Fig. 5: a unified circle", show.fig5_sheet(self.fig5)))
        if self.study is not None:
            made += _trace_sections(self.study, folder)
        if self.table2:
            sheets = (show.score_sheet(self.table2), show.talking_sheet(self.table2))
            made.append(_section("Table 2 and Fig. 15: partly compatible jobs", *sheets))
            if folder is not None:
                made[-1] = _with(made[-1], draw.draw_uses(snapshot_uses(), LINK_GBPS, folder / "fig15"))
        if self.adjusting:
            made.append(_section("Fig. 17: adjustments", show.adjusting_sheet(self.adjusting)))
            if folder is not None:
                made[-1] = _with(made[-1], draw.draw_adjusting(self.adjusting, folder / "fig17"))
        if self.precision:
            made.append(_section("Fig. 18: precision", show.precision_sheet(self.precision)))
            if folder is not None:
                made[-1] = _with(made[-1], draw.draw_precision(self.precision, folder / "fig18"))
        return made


def _section(title: str, *sheets: TextTable) -> Section:
    return Section(title, sheets)


def _with(section: Section, *pictures: Path) -> Section:
    return Section(section.title, section.sheets, pictures)


def _trace_sections(study: Study, folder: Path | None) -> list[Section]:
    """Return the gains on all traces, and a section for each of them."""
    faster, fewer = show.faster(study), show.fewer(study)
    made = [_section("Iteration times with CASSINI and without", show.gain_sheet(faster))]
    if fewer:
        made[0] = Section(made[0].title, (*made[0].sheets, show.mark_sheet(fewer)))
    for work in study.workloads:
        section = _section(show.heading(work), show.trace_sheet(study, work))
        if folder is not None and work.figure != GAP:  # of which the numbers say all
            stem = f"{'fig' if work.figure.isdigit() else ''}{work.figure}{'-fours' if work.fours else ''}"
            pictures = [draw.draw_cdfs(study, work, folder / f"{stem}-cdf")]
            if any(study.marks(work, scheme)[""] > 0 for scheme in draw.MARKED):
                pictures.append(draw.draw_marks(study, work, folder / f"{stem}-marks"))
            if work.key.startswith("poisson"):
                pictures.insert(0, draw.draw_courses(study, work, SHOWN, folder / f"{stem}-outcomes"))
            section = _with(section, *pictures)
        made.append(section)
    return made


def _table2(found: Mapping[int, Sequence[Outcome]]) -> list[dict[str, Any]]:
    """Return a row for each snapshot and set-up."""
    return [
        {
            "snapshot": number,
            "setup": one.setup,
            "score": one.fit.score,
            "score_unshifted": one.unshifted,
            "gain": one.talking_gain().mean,
            "gain_half_width_95": one.talking_gain().half,
            "iteration_gain": one.gain().mean,
            "shifts_ms": [shift_s * 1e3 for shift_s in one.fit.shifts_s],
        }
        for number, outcomes in found.items()
        for one in outcomes
    ]


def write(found: Findings, folder: Path) -> Path:
    """Write all files; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    told = found.told()
    write_json(told, folder / "cassini.json")
    if found.study is not None:
        write_csv(told["traces"], folder / "traces.csv")
    _write_links(found, folder)
    return write_page(
        folder / "cassini.html",
        "CASSINI's evaluation, rebuilt",
        sum_up("NSDI 2024", found.claims),
        [claim.told() for claim in found.claims],
        found.sections(folder),
        found.facts,
    )


def _write_links(found: Findings, folder: Path) -> None:
    """Write what was found on single links."""
    files: dict[str, Iterable[Mapping[str, Any]]] = {
        "table2": [{**row, "shifts_ms": " ".join(map(str, row["shifts_ms"]))} for row in _table2(found.table2)],
        "fig17": [
            {
                "snapshot": each.snapshot,
                "jitter": each.jitter,
                "held": each.hold,
                "adjustments_a_minute": each.a_minute.mean,
                "half_width_95": each.a_minute.half,
                "slowdown": each.slowdown.mean,
            }
            for each in found.adjusting
        ],
        "fig18": [
            {
                "degrees": each.degrees,
                "cpu_ms": each.time_ms.mean,
                "score_lost": each.lost.mean,
                "right": each.right,
            }
            for each in found.precision
        ],
    }
    for stem, rows in files.items():
        listed = list(rows)
        if listed:
            write_csv(listed, folder / f"{stem}.csv")
