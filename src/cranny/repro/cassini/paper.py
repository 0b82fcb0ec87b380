"""CASSINI's paper: the types of its file (paper.yaml), and the policies that are run here."""

from collections.abc import Mapping
from typing import Any

from cranny.repro.paper_file import Number, Paper, PaperModel, read_paper

SCHEMES = ("themis", "themis+cassini", "pollux", "pollux+cassini", "random", "ideal")
BEYOND = ("titan", "titan+cassini", "netpack", "netpack+cassini")
# Forms of a policy for single questions: its name, and its options.
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "themis+cassini, loops dropped": ("themis+cassini", {"loops": "drop"}),
    "themis+cassini, one candidate": ("themis+cassini", {"candidates": 1}),
    "themis+cassini, ranked by score": ("themis+cassini", {"rank": "score"}),
}
ALIKE, OPEN = "alike", "open"  # traces of ours


class Table3Model(PaperModel):
    """A model of Table 3: its profile, and the batches on a GPU."""

    profile: str
    batches: tuple[int, int]
    language: bool = False
    tp: int = 1
    pp: int = 1
    tokens: tuple[int, int] = (0, 0)  # of a sample, and their width: what stages and shards send
    vocabulary: int = 0  # of embeddings that the first and the last stage share
    tables: tuple[int, int, int] = (0, 0, 0)  # of embeddings that are partitioned: how many, their rows and width


class CassiniTrace(PaperModel):
    """A trace of the paper or of ours, and the cluster that it is replayed on."""

    key: str
    figure: str
    title: str
    fours: bool = False  # servers are below switches in fours, not in pairs
    # Readings of `OPEN`, each of one thing that the paper leaves open:
    question: str = ""
    host: str = ""  # whose jobs alone are replayed, if it is about one
    drawn: bool = False  # Themis draws among placements that are equal to it
    epochs: bool = False  # Themis's leases end together
    fair: bool = False  # Pollux maximises what its paper has, and not its authors' system
    rigid: bool = False  # leases of ten minutes, and jobs that keep their workers
    measured: bool = False  # computing times as on an H200
    steady: bool = False  # computing times without jitter
    replicated: bool = False  # DLRM reduces the gradients of all embeddings, as in a data-parallel job

    @property
    def schemes(self) -> tuple[str, ...]:
        """The policies that run on it."""
        if self.figure == OPEN:
            return tuple(scheme for scheme in SCHEMES[:4] if scheme.startswith(self.host))
        return (*SCHEMES, *BEYOND, *VARIANTS) if self.key == "dynamic" and self.fours else SCHEMES


class Table2Job(PaperModel):
    """A job of Table 2: its mean communication time with CASSINI and without, and its shift."""

    model: str
    batch: int
    cassini_ms: Number
    themis_ms: Number
    shift_ms: Number
    alone_ms: float = 0.0  # its up phase in the shapes, if not as with CASSINI
    gbps: float = 0.0  # that it requests of the link in the shapes, if not all

    @property
    def gain(self) -> float:
        """Return by what factor the job communicates faster with CASSINI."""
        return self.themis_ms / self.cassini_ms


class LinkSnapshot(PaperModel):
    """Jobs of Table 2 that share a link."""

    number: int
    score: float
    iteration_ms: float  # in the shapes
    jobs: tuple[Table2Job, ...]

    @property
    def gain(self) -> float:
        """Return by what factor its jobs communicate faster with CASSINI, all together."""
        return sum(job.themis_ms for job in self.jobs) / sum(job.cassini_ms for job in self.jobs)


class PaperGain(PaperModel):
    """How much faster iterations are with CASSINI, in a figure of the traces: mean and 99th percentile."""

    figure: str
    title: str
    trace: str  # its key
    host: str
    place: str
    mean: float | None = None  # None where the paper gives no number
    p99: float | None = None


class PaperMarks(PaperModel):
    """How many times fewer packets of a model are marked with CASSINI."""

    figure: str
    trace: str
    host: str
    fewer: float
    place: str
    model: str = ""  # empty: the model that has the most


class CassiniPaper(Paper):
    """The file of the paper."""

    table2: tuple[LinkSnapshot, ...]
    models: Mapping[str, Table3Model]
    traces: tuple[CassiniTrace, ...]
    gains: tuple[PaperGain, ...]
    marks: tuple[PaperMarks, ...]


TEXT = read_paper(CassiniPaper, __package__)
TABLE2, MODELS, TRACES = TEXT.table2, TEXT.models, TEXT.traces
DATA_PARALLEL = tuple(name for name, model in MODELS.items() if model.tp * model.pp == 1 and not model.tables[0])
MODEL_PARALLEL = tuple(name for name in MODELS if name not in DATA_PARALLEL)
