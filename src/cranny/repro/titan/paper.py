"""Titan's paper: the types of its file (paper.yaml), and the policies and networks that are run here."""

from collections.abc import Iterable, Mapping

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
    more: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further policies, and the networks that they run with


class TitanReading(PaperModel):
    """Another reading of what the paper leaves open, and the figures that may depend on it."""

    key: str
    question: str
    ours: str  # our own reading of it
    name: str
    figures: tuple[int, ...]
    policies: Mapping[str, str] = {}  # which run in place of those of the paper
    collective: str = "halving-doubling"
    options: Mapping[str, Mapping[str, bool]] = {}  # of policies
    # Traces and networks on which it is replayed anew; where it only has other policies, these are more policies.
    setups: tuple[tuple[str, str], ...] = ()
    beside: tuple[str, ...] = ()  # policies that the paper does not have

    def schemes(self, policies: Iterable[str]) -> list[str]:
        """Return those of some policies that it may change."""
        return [policy for policy in policies if not self.options or policy in self.options]

    def runs(self, scheme: str) -> str:
        """Return the policy that runs in place of one of the paper."""
        return self.policies.get(scheme, scheme)


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
    readings: tuple[TitanReading, ...]


TEXT = read_paper(TitanPaper, __package__)
# As the paper has them, and as their own papers or textbooks do.
POLICIES = (*TEXT.names, "best-fit", "elasticflow", "hived", "best-fit-mapped")
# Those that only some traces have come last.
ALL_POLICIES = tuple(dict.fromkeys([*POLICIES, *(policy for trace in TEXT.traces for policy, _ in trace.more)]))
READINGS = {reading.key: reading for reading in TEXT.readings}
EXPERIMENTS = tuple(sorted({figure.experiment for figure in (*TEXT.figures, *TEXT.testbed)}))
