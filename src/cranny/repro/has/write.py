"""What goes to the folder: values as CSV and JSON, pictures, and the page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cranny.repro.claim import Claim, sum_up
from cranny.repro.figure import LOOKS, Group, Line, draw_bars, draw_lines
from cranny.repro.files import write_csv, write_json
from cranny.repro.has.claims import claims
from cranny.repro.has.instances import GPU_TYPES, MODELS
from cranny.repro.has.static import scores_of
from cranny.repro.has.study import Study
from cranny.repro.has.tables import sheets
from cranny.repro.has.values import AXES, FAIR, JCT, LOSS, MORE, PAPER_NAMES, TITLES
from cranny.repro.page import Section, write_page
from cranny.version import VERSION

# What is drawn of each figure; tables have everything.
PICTURED = {
    "Fig. 9": (LOSS,),
    "Fig. 10": (FAIR,),
    "Fig. 11": (LOSS,),
    "Fig. 12": (LOSS,),
    "Fig. 14": (LOSS, JCT),
    "Fig. 15": (MORE,),
    "Fig. 16": (JCT, "communication, s"),
    "Fig. 17": (JCT, "makespan, s"),
    "Fig. 18": (JCT,),
    "moving": (JCT, "moves"),
}
CLUSTER = (
    "Clusters: machines of 5 GPUs, one type a machine, T4, P100 and V100 in turn; 300 Gbps inside, 10 Gbps "
    "between "
    "machines. Jobs: the first 3 to 5 of Table III. Gradients are exchanged once an epoch, as in Eq. 6."
)
RESETS = (
    "Figs. 17 and the costs of moving: the policies of the same names in the simulator, all jobs at time zero, "
    "from 1 "
    "to 15 workers each. An epoch is an iteration of the simulator's ring. A move costs nothing unless said. "
    "Gavel: "
    "its rounds without the simulator, so that its first round begins at once. Optimus with equal parts is left "
    "out "
    "there: the simulator's workers always share in proportion."
)


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was found, and what it says."""

    study: Study
    claims: Sequence[Claim]
    facts: Sequence[str]

    def told(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "paper": "HAS and JPS, TPDS 2024",
            "version": VERSION,
            "how": list(self.facts),
            "claims": [asdict(claim) for claim in self.claims],
            "throughputs": [
                {
                    name: dict(zip(GPU_TYPES, row, strict=True))
                    for name, row in zip(MODELS, each.tolist(), strict=True)
                }
                for each in self.study.rates
            ],
            "values": self.study.records(),
        }


def find(study: Study) -> Findings:
    """Make claims of what was run."""
    fits = len(study.rates)
    least, most = np.min(study.rates, axis=0), np.max(study.rates, axis=0)
    ranges = "; ".join(
        f"{name} "
        + ", ".join(f"{kind} {a:.0f} to {b:.0f}" for kind, a, b in zip(GPU_TYPES, low, high, strict=True))
        for name, low, high in zip(MODELS, least, most, strict=True)
    )
    throughputs = (
        f"Throughputs: of 15, the paper prints four. {fits} sets were drawn that give, within 5 %, the mean JCT "
        "of "
        "the three categories that it names, with {6, 5, 2, 2} the best, its fairness within 0.03 and H = 1.15 "
        f"within 0.03. Samples/s in them: {ranges}."
    )
    proof = (
        "has-exact stands for exhaustive search where that would take hours; it proves that its answer is optimal."
    )
    facts = [
        CLUSTER,
        throughputs,
        f"What JPS and errors draw is repeated {study.rounds} times for each set (the paper: 100 times).",
        RESETS,
        proof,
    ]
    return Findings(study, claims(study), facts)


def write(found: Findings, folder: Path) -> Path:
    """Write all files; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(found.told(), folder / "has.json")
    write_csv(found.study.records(), folder / "values.csv")
    sections = []
    for figure, title in TITLES.items():
        pictures = _pictures(found.study, figure, folder)
        sections.append(Section(f"{figure}: {title}", sheets(found.study, figure), pictures))
    return write_page(
        folder / "has.html",
        "The evaluation of HAS and JPS, rebuilt",
        sum_up("TPDS 2024", found.claims),
        [each.told() for each in found.claims],
        sections,
        found.facts,
    )


def _pictures(study: Study, figure: str, folder: Path) -> list[Path]:
    """Draw what a figure of the paper shows."""
    name = figure.lower().replace(". ", "").replace(" ", "-")
    if figure in ("Fig. 4", "Fig. 5", "Fig. 6"):
        column = 1 if figure == "Fig. 5" else 0
        panels = {}
        for workers in (15, 30):
            values = scores_of(study.rates[0], workers, prioritised=figure == "Fig. 6")[:, column].tolist()
            panels[f"K = {workers}"] = [Line("has", range(1, len(values) + 1), values)]
        ylabel = FAIR if column else JCT
        return draw_lines(panels, ylabel, PAPER_NAMES, folder / name, xlabel="category, first fit", unit_s=1.0)[
            -1:
        ]
    if figure == "Fig. 13":
        return _trade_off(study, folder / name)
    measures = PICTURED.get(figure, ())
    if len(measures) > 1 and figure in AXES:
        return _lines(study, figure, measures, folder / name)
    return [
        picture
        for number, measure in enumerate(measures)
        for picture in _bars(study, figure, measure, folder / f"{name}-{number}")
    ]


def _bars(study: Study, figure: str, measure: str, path: Path) -> list[Path]:
    """Draw a measure as bars, a group a setting."""
    groups = [
        Group(setting, {scheme: study.at(at) for scheme, at in row.items() if scheme in LOOKS})
        for setting, row in study.of(figure, measure).items()
    ]
    return draw_bars({figure: groups}, measure, PAPER_NAMES, path, xlabel="", wide=True)[-1:]


def _lines(study: Study, figure: str, measures: Sequence[str], path: Path) -> list[Path]:
    """Draw measures over what is varied, a panel each, a line a scheme."""
    panels: dict[str, list[Line]] = {}
    for measure in measures:
        table = study.of(figure, measure)
        panels[measure] = []
        for scheme in dict.fromkeys(scheme for row in table.values() for scheme in row):
            places = [(float(setting), row[scheme]) for setting, row in table.items() if scheme in row]
            panels[measure].append(Line(scheme, [x for x, _ in places], [study.at(at).mean for _, at in places]))
    return draw_lines(panels, "", PAPER_NAMES, path, xlabel=AXES[figure], unit_s=1.0)[-1:]


def _trade_off(study: Study, path: Path) -> list[Path]:
    """Draw what fairness costs as beta goes from 1 to 0, and the same without the last step."""
    table = study.of("Fig. 13", JCT)
    panels: dict[str, list[Line]] = {"beta from 1 to 0": [], "beta from 1 to 0.1": []}
    lowest_s = min(study.at(at).mean for at in table["1"].values())
    for scheme in table["1"]:
        both = [
            (study.mean("Fig. 13", FAIR, beta, scheme), 100 * (study.at(row[scheme]).mean / lowest_s - 1))
            for beta, row in table.items()
        ]
        for title, points in zip(panels, (both, both[1:]), strict=True):
            panels[title].append(Line(scheme, [fair for fair, _ in points], [more for _, more in points]))
    return draw_lines(panels, "mean JCT over the lowest, %", PAPER_NAMES, path, xlabel=FAIR, unit_s=1.0)[-1:]
