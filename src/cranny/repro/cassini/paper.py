"""CASSINI's paper: the types of its file (paper.yaml), and single values that set-ups and plots are made of."""

from cranny.repro.paper_file import Number, Paper, PaperModel, read_paper

# Fig. 2: two VGG19 jobs on one link.
FIG2_SHIFT_MS = 120.0
FIG2_P90_GAIN = 1.26
FIG2_SHARED_GBPS = 22.0  # of either job while both send
# Fig. 5: two jobs with different iteration times.
FIG5_ITERATIONS_MS, FIG5_PERIMETER_MS, FIG5_ROTATION_DEG = (40.0, 60.0), 120.0, 30.0
FIG17_MOST_A_MINUTE = 2.0
FIG17_SNAPSHOTS = (1, 2, 3)
FIG18_PRECISION_DEG = 5.0


class Table2Job(PaperModel):
    """A job of Table 2: its mean communication time with CASSINI and without, and its shift."""

    model: str
    batch: int
    cassini_ms: Number
    themis_ms: Number
    shift_ms: Number

    @property
    def gain(self) -> float:
        """Return by what factor the job communicates faster with CASSINI."""
        return self.themis_ms / self.cassini_ms


class LinkSnapshot(PaperModel):
    """Jobs of Table 2 that share a link."""

    number: int
    score: float
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
    gains: tuple[PaperGain, ...]
    marks: tuple[PaperMarks, ...]


TEXT = read_paper(CassiniPaper, __package__)
PAPER_NAMES, TABLE2, GAINS, MARKS = TEXT.names, TEXT.table2, TEXT.gains, TEXT.marks
