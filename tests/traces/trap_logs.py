"""Ten made-up logs of sacct with traps, and their true numbers, worked out by hand in the comments."""

from typing import NamedTuple

from tests.reference.log_truth import Truth

FIELDS = "JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|NNodes|NodeList|AllocTRES|ReqTRES"


class Trap(NamedTuple):
    """A log, the zone of its times, the window that is asked about, and what is true."""

    log: str
    true: Truth
    zone: str = "UTC"
    begin: str | None = None
    finish: str | None = None


def row(
    job: str, submit: str, start: str, end: str, machines: str, gpus: str, *, state: str = "COMPLETED", **more: str
) -> str:
    """Write a row; times are of the day that is given, or whole."""
    tres = f"billing=8,cpu=8,gres/{gpus},mem=64G" if gpus else "billing=8,cpu=8,mem=64G"
    nodes = "0" if machines == "None assigned" else "1"
    allocated = "" if machines == "None assigned" else tres
    values = {
        "JobID": job,
        "User": "ann",
        "Account": "lab",
        "Partition": "gpu",
        "QOS": "normal",
        "State": state,
        "Submit": submit,
        "Eligible": submit,
        "Start": start,
        "End": end,
        "NNodes": nodes,
        "NodeList": machines,
        "AllocTRES": allocated,
        "ReqTRES": tres,
        **more,
    }
    return "|".join(values[name] for name in FIELDS.split("|"))


def log(*rows: str) -> str:
    """Write a log."""
    return "\n".join((FIELDS, *rows)) + "\n"


TRAPS = {
    # Clocks go forward on 2026-03-29 at 02:00: from 01:30 to 03:30 is one hour, not two. They go back on
    # 2026-10-25 at 03:00: 01:30 to 04:30 is four hours. Waits: 0 and 3,600 s (from 00:30 to 01:30). GPU-
    # hours: 8x1 + 4x4 = 24.
    "daylight saving": Trap(
        log(
            row("1", "2026-03-29T01:30:00", "2026-03-29T01:30:00", "2026-03-29T03:30:00", "n1", "gpu=8"),
            row("2", "2026-10-25T00:30:00", "2026-10-25T01:30:00", "2026-10-25T04:30:00", "n2", "gpu=4"),
        ),
        Truth(2, 24.0, 2, 1800.0, 5.0),
        zone="Europe/Berlin",
    ),
    # Three tasks of an array ran for an hour with two GPUs each on one machine, one after the other; those
    # that are still pending have a row for all of them, which never ran. GPU-hours 6, waits 0, 1 h, 2 h: mean
    # 3,600 s.
    "arrays": Trap(
        log(
            row("7_1", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T09:00:00", "n1", "gpu=2"),
            row("7_2", "2026-03-02T08:00:00", "2026-03-02T09:00:00", "2026-03-02T10:00:00", "n1", "gpu=2"),
            row("7_3", "2026-03-02T08:00:00", "2026-03-02T10:00:00", "2026-03-02T11:00:00", "n1", "gpu=2"),
            row(
                "7_[4-90%1]",
                "2026-03-02T08:00:00",
                "Unknown",
                "Unknown",
                "None assigned",
                "gpu=2",
                state="PENDING",
            ),
        ),
        Truth(3, 6.0, 3, 3600.0, 3.0),
    ),
    # A job with its batch step, an srun and an extern step, as sacct without -X writes them: one job, 8 x 2
    # h.
    "steps": Trap(
        log(
            row("9", "2026-03-02T08:00:00", "2026-03-02T08:10:00", "2026-03-02T10:10:00", "n1", "gpu=8"),
            row("9.batch", "2026-03-02T08:10:00", "2026-03-02T08:10:00", "2026-03-02T10:10:00", "n1", "gpu=8"),
            row("9.extern", "2026-03-02T08:10:00", "2026-03-02T08:10:00", "2026-03-02T10:10:00", "n1", "gpu=8"),
            row("9.0", "2026-03-02T08:11:00", "2026-03-02T08:11:00", "2026-03-02T10:10:00", "n1", "gpu=8"),
        ),
        Truth(1, 16.0, 1, 600.0, 2.0),
    ),
    # The first attempt ran for an hour until its machine failed, the second one waited 30 minutes and ran for
    # two.
    "requeues": Trap(
        log(
            row(
                "11",
                "2026-03-02T08:00:00",
                "2026-03-02T08:00:00",
                "2026-03-02T09:00:00",
                "n1",
                "gpu=4",
                state="NODE_FAIL",
            ),
            row("11", "2026-03-02T09:00:00", "2026-03-02T09:30:00", "2026-03-02T11:30:00", "n2", "gpu=4"),
        ),
        Truth(2, 12.0, 2, 900.0, 3.0),
    ),
    # Cancelled while it waited: Slurm writes the same start and end, and no machine. The other one ran for an
    # hour.
    "cancelled before start": Trap(
        log(
            row(
                "12",
                "2026-03-02T08:00:00",
                "2026-03-02T12:00:00",
                "2026-03-02T12:00:00",
                "None assigned",
                "gpu=64",
                state="CANCELLED by 1000",
            ),
            row("13", "2026-03-02T08:00:00", "2026-03-02T08:00:20", "2026-03-02T09:00:20", "n1", "gpu=1"),
        ),
        Truth(1, 1.0, 1, 20.0, 1.0),
    ),
    # One job runs on: it counts to the end of the window, 20:00, which is 10 hours; with the other one's two
    # on the same machine the machine is busy from 09:00 to 20:00. GPU-hours 2 x 10 + 4 x 2.
    "no end": Trap(
        log(
            row("14", "2026-03-02T08:00:00", "2026-03-02T10:00:00", "Unknown", "n1", "gpu=2", state="RUNNING"),
            row("15", "2026-03-02T09:00:00", "2026-03-02T09:00:00", "2026-03-02T11:00:00", "n1", "gpu=4"),
        ),
        Truth(2, 28.0, 2, 3600.0, 11.0),
        begin="2026-03-02T00:00:00",
        finish="2026-03-02T20:00:00",
    ),
    # Two parts that start and end together: one job of 12 GPUs on three machines. 12 x 2 h = 24, 3 x 2 h = 6.
    "heterogeneous jobs": Trap(
        log(
            row(
                "16+0",
                "2026-03-02T08:00:00",
                "2026-03-02T08:05:00",
                "2026-03-02T10:05:00",
                "n[1-2]",
                "gpu=8",
                NNodes="2",
            ),
            row("16+1", "2026-03-02T08:00:00", "2026-03-02T08:05:00", "2026-03-02T10:05:00", "n7", "gpu=4"),
        ),
        Truth(1, 24.0, 1, 300.0, 6.0),
    ),
    # A part of a GPU is not a GPU: only the job with a whole one is left.
    "MIG": Trap(
        log(
            row("17", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T18:00:00", "n1", "gpu:1g.5gb=1"),
            row("18", "2026-03-02T08:00:00", "2026-03-02T08:00:40", "2026-03-02T09:00:40", "n1", "gpu:a100=1"),
        ),
        Truth(1, 1.0, 1, 40.0, 1.0),
    ),
    # A job left over from January, one that ends in the window, one inside it and one that runs beyond it.
    # March has 31 days: the first one has 31 x 24 x 8 = 5,952 GPU-hours of it; the second one 8 x 24 = 192,
    # the third 8 x 10 = 80, the fourth 8 x 12 = 96. Only the last two were submitted in March: they waited 0
    # and 7,200 s. UTC.
    "outside the window": Trap(
        log(
            row("19", "2026-01-03T00:00:00", "2026-01-03T00:00:00", "Unknown", "n1", "gpu=8", state="RUNNING"),
            row("20", "2026-02-20T00:00:00", "2026-02-27T00:00:00", "2026-03-02T00:00:00", "n2", "gpu=8"),
            row("21", "2026-03-10T00:00:00", "2026-03-10T00:00:00", "2026-03-10T10:00:00", "n2", "gpu=8"),
            row("22", "2026-03-31T10:00:00", "2026-03-31T12:00:00", "2026-04-03T00:00:00", "n3", "gpu=8"),
            row("23", "2026-04-02T00:00:00", "2026-04-02T00:00:00", "2026-04-03T00:00:00", "n4", "gpu=8"),
        ),
        Truth(4, 5952.0 + 192.0 + 80.0 + 96.0, 2, 3600.0, 744.0 + 24.0 + 10.0 + 12.0),
        begin="2026-03-01T00:00:00",
        finish="2026-04-01T00:00:00",
    ),
    # The same type under three names; a machine that has left the cluster since; waits that count from when
    # the jobs could have started. Waits 60, 0 and 30 s; GPU-hours 8 + 8 + 2; two machines in the same hour,
    # then one.
    "types, machines that left, later begin": Trap(
        log(
            row("24", "2026-03-02T08:00:00", "2026-03-02T08:01:00", "2026-03-02T09:01:00", "n1", "gpu:A100=8"),
            row("25", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T09:00:00", "old-n9", "gpu:a100=8"),
            row(
                "26",
                "2026-03-02T08:00:00",
                "2026-03-02T10:00:30",
                "2026-03-02T12:00:30",
                "n2",
                "gpu:nvidia_a100-sxm4-80gb=1",
                Eligible="2026-03-02T10:00:00",
            ),
        ),
        Truth(3, 18.0, 3, 30.0, 4.0),
    ),
}
