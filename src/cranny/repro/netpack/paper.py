"""NetPack's paper: the types of its file (paper.yaml), and the policies that it compares with."""

from collections.abc import Mapping
from typing import Any, Literal

from cranny.repro.paper_file import Paper, PaperModel, read_paper

Measure = Literal["jct", "de"]
NETPACK, COMB = "netpack", "comb"
RIVALS = ("gpu-balance", "flow-balance", "least-fragmentation", "optimus", "tetris")
# Forms of NetPack for single experiments: the sign of Eq. 1 as printed, and its placement with another queue.
PRINTED, IN_ORDER = "netpack-printed", "netpack-fifo"


class PanelText(PaperModel):
    """A panel: all workloads on a set-up, or one of them with a field varied."""

    on: str
    workload: str = ""
    vary: str = ""
    fixed: Mapping[str, Any] = {}  # other fields


class ExperimentText(PaperModel):
    """One figure of the paper, or a question of ours."""

    title: str
    axis: str
    panels: Mapping[str, PanelText]
    measure: Measure = "jct"
    schemes: tuple[str, ...] = ()  # all, if none are given
    more_schemes: tuple[str, ...] = ()


class NetpackPaper(Paper):
    """The file of the paper."""

    setups: Mapping[str, Mapping[str, Mapping[str, Any]]]
    varied: Mapping[str, Mapping[str, Any]]
    experiments: Mapping[str, ExperimentText]


TEXT = read_paper(NetpackPaper, __package__)
