"""Titan's paper: the types of its file (paper.yaml), and the policies and networks that are run here."""

from collections.abc import Mapping

from cranny.repro.claim import Pair
from cranny.repro.paper_file import Number, Paper, PaperModel, read_paper


class TitanFigure(PaperModel):
    """One figure: its claim, and the values that the text states."""

    number: int
    experiment: int
    title: str
    claim: str
    unit: str = ""
    place: str
    values: Mapping[str, Number] = {}


class TraceFigure(TitanFigure):
    """One figure of experiments 1 to 4: a measure over time on two traces."""

    metric: str  # of a summary
    column: str  # of a timeline
    factor: float = 1.0  # from our values to the unit
    network: str  # that we compare with first
    stated: tuple[Pair, ...]  # what the text claims for every trace, lower value first
    on: str = ""  # the trace that the values are for
    ratios_only: bool = False  # the values are relative to Titan's


class PlacementFigure(TitanFigure):
    """One figure of experiments 5 to 7: a measure on the testbed for 4 to 12 workers and two models."""

    measure: str
    model: str
    workers: int

    @property
    def setting(self) -> tuple[str, int]:
        """Return the model and the workers that the values are for."""
        return self.model, self.workers


class TitanTrace(PaperModel):
    """A trace that is replayed, and what the paper calls it."""

    key: str
    label: str
    preset: str
    jobs: int
    file: str = ""  # in the folder of traces; none: always generated
    paper: str = ""  # which trace of the paper it stands for
    networks: tuple[str, ...] = ("instant", "isolated")
    once: tuple[str, ...] = ()  # policies that run with one seed only: they take long


class TitanRival(PaperModel):
    """A policy of another kind whose used machines are compared with Titan's."""

    network: str
    policy: str
    name: str  # in sentences
    title: str


class TitanPaper(Paper):
    """The file of the paper."""

    figures: tuple[TraceFigure, ...]
    testbed: tuple[PlacementFigure, ...]
    traces: tuple[TitanTrace, ...]
    rivals: tuple[TitanRival, ...]


TEXT = read_paper(TitanPaper, __package__)
# As the paper has them, and as their own papers or textbooks do.
POLICIES = (*TEXT.names, "best-fit", "elasticflow", "hived", "best-fit-mapped")
EXPERIMENTS = tuple(sorted({figure.experiment for figure in (*TEXT.figures, *TEXT.testbed)}))
