"""CASSINI's paper as data: the values that its text and its Table 2 state, and where.

S. Rajasekaran, M. Ghobadi and A. Akella, "CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters",
NSDI 2024. Only numbers of the text are here; curves of its figures cannot be read to the digit.
"""

from dataclasses import dataclass

PAPER_NAMES = {
    "themis": "Themis",
    "themis+cassini": "Th+CASSINI",
    "pollux": "Pollux",
    "pollux+cassini": "Po+CASSINI",
    "ideal": "Ideal",
    "random": "Random",
}

# Fig. 2: two VGG19 jobs on one link.
FIG2_SHIFT_MS = 120.0
FIG2_P90_GAIN = 1.26
FIG2_SHARED_GBPS = 22.0  # of either job while both send
# Fig. 5: two jobs with different iteration times.
FIG5_ITERATIONS_MS, FIG5_PERIMETER_MS, FIG5_ROTATION_DEG = (40.0, 60.0), 120.0, 30.0
FIG17_MOST_A_MINUTE = 2.0
FIG17_SNAPSHOTS = (1, 2, 3)
FIG18_PRECISION_DEG = 5.0


@dataclass(frozen=True, slots=True)
class Table2Job:
    """A job of Table 2: its mean communication time with CASSINI and without, and its shift."""

    model: str
    batch: int
    cassini_ms: float
    themis_ms: float
    shift_ms: float

    @property
    def gain(self) -> float:
        """Return by what factor the job communicates faster with CASSINI."""
        return self.themis_ms / self.cassini_ms


@dataclass(frozen=True, slots=True)
class LinkSnapshot:
    """Jobs of Table 2 that share a link."""

    number: int
    score: float
    jobs: tuple[Table2Job, ...]

    @property
    def gain(self) -> float:
        """Return by what factor its jobs communicate faster with CASSINI, all together."""
        return sum(job.themis_ms for job in self.jobs) / sum(job.cassini_ms for job in self.jobs)


TABLE2 = (
    LinkSnapshot(1, 1.0, (Table2Job("wideresnet101", 800, 138, 205, 0), Table2Job("vgg16", 1400, 148, 199, 150))),
    LinkSnapshot(
        2,
        1.0,
        (
            Table2Job("vgg19", 1400, 168, 220, 0),
            Table2Job("vgg16", 1700, 163, 220, 158),
            Table2Job("resnet50", 1600, 59, 55, 46),
        ),
    ),
    LinkSnapshot(3, 0.9, (Table2Job("vgg19", 1024, 166, 176, 0), Table2Job("vgg16", 1200, 168, 177, 100))),
    LinkSnapshot(4, 0.8, (Table2Job("roberta", 12, 164, 210, 0), Table2Job("roberta", 12, 180, 208, 60))),
    LinkSnapshot(
        5,
        0.6,
        (
            Table2Job("bert", 8, 209, 213, 0),
            Table2Job("vgg19", 1400, 294, 292, 42),
            Table2Job("wideresnet101", 800, 265, 266, 191),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class PaperGain:
    """How much faster iterations are with CASSINI, in a figure of the traces: mean and 99th percentile."""

    figure: str
    title: str
    trace: str  # its key
    host: str
    mean: float | None  # None where the paper gives no number
    p99: float | None
    place: str


GAINS = (
    PaperGain("11", "Poisson trace", "poisson", "themis", 1.6, 1.8, "Sec. 5.2, Fig. 11(b)"),
    PaperGain("11", "Poisson trace", "poisson", "pollux", None, None, 'Sec. 5.2: "similar gains"'),
    PaperGain("12", "Poisson trace, model parallel", "poisson-mp", "themis", 1.2, 1.6, "Sec. 5.2, Fig. 12(b)"),
    PaperGain("13", "dynamic trace", "dynamic", "themis", 1.5, 2.2, "Sec. 5.3, Fig. 13(a)"),
    PaperGain("13", "dynamic trace", "dynamic", "pollux", 1.6, 2.5, "Sec. 5.3, Fig. 13(a)"),
    PaperGain("14", "dynamic trace, model parallel", "dynamic-mp", "themis", 1.2, 1.6, "Sec. 5.4, Fig. 14(a)"),
    PaperGain(
        "14", "dynamic trace, model parallel", "dynamic-mp", "pollux", None, None, 'Sec. 5.4: "similar gains"'
    ),
    PaperGain("16", "servers with two GPUs", "dynamic-2", "themis", 1.4, 1.9, "Sec. 5.6, Fig. 16(b)"),
)


@dataclass(frozen=True, slots=True)
class PaperMarks:
    """How many times fewer packets of a model are marked with CASSINI."""

    figure: str
    trace: str
    host: str
    model: str  # empty: the model that has the most
    fewer: float
    place: str


MARKS = (
    PaperMarks("13", "dynamic", "themis", "dlrm", 27.0, "Sec. 5.3, Fig. 13(d)"),
    PaperMarks("13", "dynamic", "pollux", "dlrm", 33.0, "Sec. 5.3, Fig. 13(d)"),
    PaperMarks("14", "dynamic-mp", "themis", "", 29.0, "Sec. 5.4, Fig. 14(d), one of its models"),
)

# Sentences for the page.
MARKED = "Packets with ECN marks are approximated by gigabits requested above the capacity of links."
UNTESTED = (
    "Real training: RoCE with DCQCN, PFC and ECN is a fluid here that shares links fairly at once; agents, "
    "stragglers and data loading are a jitter of computing times. The paper's own circles and traces are not "
    "published: batches, workers and iterations are drawn from the ranges that it gives."
)
