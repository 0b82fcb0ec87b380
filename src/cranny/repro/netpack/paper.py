"""NetPack's paper: the types of its file (paper.yaml), and the policies that it compares with."""

from collections.abc import Mapping
from typing import Any, Literal

from cranny.repro.paper_file import Paper, PaperModel, read_paper

Measure = Literal["jct", "de"]
NETPACK, COMB = "netpack", "comb"
IN_ORDER = "netpack-fifo"  # its placement with the queue of the others


class PanelText(PaperModel):
    """A panel: all workloads on a set-up, or one of them with a field varied."""

    on: str
    workload: str = ""
    vary: str = ""
    fixed: Mapping[str, Any] = {}  # other fields
    points: tuple[str, ...] = ()  # labels of what is varied; all, if none are given


class ExperimentText(PaperModel):
    """One figure of the paper, or a question of ours."""

    title: str
    axis: str
    panels: Mapping[str, PanelText]
    measure: Measure = "jct"
    schemes: tuple[str, ...] = ()  # all, if none are given
    more_schemes: tuple[str, ...] = ()
    paper_only: bool = False  # NetPack and its baselines, without policies of ours and Comb, which Fig. 13 has


class ChoiceText(PaperModel):
    """Something that the paper leaves open, and how forms of NetPack read it, ours first."""

    question: str
    readings: Mapping[str, str] = {}


class NetpackPaper(Paper):
    """The file of the paper."""

    baselines: Mapping[str, tuple[str, ...]]  # by reading, ours first
    forms: Mapping[str, Mapping[str, Any]]
    left_open: Mapping[str, ChoiceText]
    setups: Mapping[str, Mapping[str, Mapping[str, Any]]]
    varied: Mapping[str, Mapping[str, Any]]
    experiments: Mapping[str, ExperimentText]


TEXT = read_paper(NetpackPaper, __package__)
BY_MACHINE, *_ = TEXT.baselines  # our reading
