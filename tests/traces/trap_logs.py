"""Made-up logs of sacct with traps, and their true numbers, worked out by hand in the comments."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.reference.log_truth import Truth

from cranny.analysis.whatif.as_it_was import ELSEWHERE, NO_ROOM

FIELDS = "JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|NNodes|NodeList|AllocTRES|ReqTRES"


class Trap(NamedTuple):
    """A log, the machines of its cluster, the zone of its times, the window that is asked about, what is true."""

    log: str
    true: Truth
    machines: Mapping[str, tuple[int, str]]  # GPUs, and their type
    zone: str = "UTC"
    begin: str | None = None
    finish: str | None = None
    unplaced: Mapping[str, tuple[int, float]] = {}  # jobs and GPU-hours that the log's own row cannot have


def a100(*names: str) -> dict[str, tuple[int, str]]:
    """Return machines with eight of these GPUs."""
    return dict.fromkeys(names, (8, "a100"))


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
        a100("n1", "n2"),
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
        a100("n1", "n2"),
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
        a100("n1"),
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
        a100("n1", "n2"),
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
        a100("n1", "n2"),
    ),
    # One job runs on: it counts to the end of the window, 20:00, which is 10 hours; with the other one's two
    # on the same machine the machine is busy from 09:00 to 20:00. GPU-hours 2 x 10 + 4 x 2.
    "no end": Trap(
        log(
            row("14", "2026-03-02T08:00:00", "2026-03-02T10:00:00", "Unknown", "n1", "gpu=2", state="RUNNING"),
            row("15", "2026-03-02T09:00:00", "2026-03-02T09:00:00", "2026-03-02T11:00:00", "n1", "gpu=4"),
        ),
        Truth(2, 28.0, 2, 3600.0, 11.0),
        a100("n1", "n2"),
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
        a100("n1", "n2", "n7", "n8"),
    ),
    # A part of a GPU is not a GPU: only the job with a whole one is left. The machine was in use for ten hours.
    "MIG": Trap(
        log(
            row("17", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T18:00:00", "n1", "gpu:1g.5gb=1"),
            row("18", "2026-03-02T08:00:00", "2026-03-02T08:00:40", "2026-03-02T09:00:40", "n1", "gpu:a100=1"),
        ),
        Truth(1, 1.0, 1, 40.0, 10.0),
        a100("n1", "n2"),
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
        a100("n1", "n2", "n3", "n4"),
        begin="2026-03-01T00:00:00",
        finish="2026-04-01T00:00:00",
    ),
    # The same type under three names, matched with the cluster's; waits that count from when the jobs could have
    # started. Waits 60, 0 and 30 s; GPU-hours 8 + 8 + 2; two machines in the same hour, then one for two hours.
    "types, later begin": Trap(
        log(
            row("24", "2026-03-02T08:00:00", "2026-03-02T08:01:00", "2026-03-02T09:01:00", "n1", "gpu:A100=8"),
            row("25", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T09:00:00", "N2.lab", "gpu:a100=8"),
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
        {"n1": (8, "a100"), "n2": (8, "a100"), "n3": (4, "v100")},
    ),
    # One job on a machine that has left the cluster since, one on such a machine and on one that is still there:
    # of 100 + 2 + 2 GPU-hours the log's own row lacks 4. n1 is in use for 25 h, n2 for half an hour, old-n9 for an
    # hour and a half.
    "machines that left": Trap(
        log(
            row("27", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-03T09:00:00", "n1", "gpu=4"),
            row("28", "2026-03-02T09:00:00", "2026-03-02T09:00:00", "2026-03-02T10:00:00", "old-n9", "gpu=2"),
            row(
                "29",
                "2026-03-02T11:00:00",
                "2026-03-02T11:00:00",
                "2026-03-02T11:30:00",
                "n2,old-n9",
                "gpu=4",
                NNodes="2",
            ),
            row("30", "2026-03-03T08:00:00", "2026-03-03T08:00:00", "2026-03-03T08:00:00", "n1", "gpu=1"),
        ),
        Truth(4, 104.0, 4, 0.0, 27.0),
        a100("n1", "n2"),
        unplaced={ELSEWHERE: (2, 4.0)},
    ),
    # A cluster in Berlin and one in Boston in one log, each with its own offset, some times in UTC; the window is
    # asked for in Boston's time: from 04:00 to 18:00 UTC on 2026-03-30, a day after Berlin's clocks were changed.
    # 31: 06:00 to 08:00 in Berlin is 04:00 to 06:00 UTC, submitted an hour earlier, before the window: 8 x 2 h.
    # 32: 02:00 to 05:00 in Boston is 06:00 to 09:00 UTC, waited 30 min: 4 x 3 h. 33: 17:00 to 19:00 UTC, of which
    # one hour is in the window, waited 60 s: 2 x 1 h.
    "mixed zones": Trap(
        log(
            row(
                "31",
                "2026-03-30T05:00:00+02:00",
                "2026-03-30T06:00:00+02:00",
                "2026-03-30T08:00:00+02:00",
                "n1",
                "gpu=8",
            ),
            row(
                "32",
                "2026-03-30T01:30:00-0400",
                "2026-03-30T02:00:00-0400",
                "2026-03-30T05:00:00-0400",
                "n2",
                "gpu=4",
            ),
            row("33", "2026-03-30T16:59:00Z", "2026-03-30T17:00:00Z", "2026-03-30T15:00:00", "n2", "gpu=2"),
        ),
        Truth(3, 30.0, 2, 930.0, 6.0),
        a100("n1", "n2"),
        zone="America/New_York",
        begin="2026-03-30T00:00:00",
        finish="2026-03-30T14:00:00",
    ),
    # Jobs that hold nothing here but were on machines of GPUs: a shard on n1 for 3 h (12:00 to 15:00), CPUs of n2
    # for 6 h (08:00 to 14:00), CPUs of a machine without GPUs. One job with GPUs has n1 for 2 h (08:00 to 10:00);
    # another one is submitted at 16:00 and runs on n1 for an hour. In use: n1 2 + 3 + 1 h, n2 6 h, cpu7 8 h.
    "jobs without whole GPUs": Trap(
        log(
            row("34", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T10:00:00", "n1", "gpu=8"),
            row("35", "2026-03-02T12:00:00", "2026-03-02T12:00:00", "2026-03-02T15:00:00", "n1", "shard=1"),
            row("36", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T14:00:00", "n2", ""),
            row("37", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-02T16:00:00", "cpu7", ""),
            row("38", "2026-03-02T16:00:00", "2026-03-02T16:00:00", "2026-03-02T17:00:00", "n1", "gpu=8"),
        ),
        Truth(2, 24.0, 2, 0.0, 20.0),
        a100("n1", "n2", "n3"),
    ),
    # Two jobs with all GPUs of one machine at the same time, which cannot be: the second one has no run, but its
    # machine was in use until 00:30. 39 holds 8 x 40 = 320, 40 8 x 1 = 8 and 41 1 x 1 GPU-hours: 2.4 % are lost.
    "two jobs in one place": Trap(
        log(
            row("39", "2026-03-02T08:00:00", "2026-03-02T08:00:00", "2026-03-04T00:00:00", "n1", "gpu=8"),
            row("40", "2026-03-03T23:30:00", "2026-03-03T23:30:00", "2026-03-04T00:30:00", "n1", "gpu=8"),
            row("41", "2026-03-04T02:00:00", "2026-03-04T02:00:00", "2026-03-04T03:00:00", "n2", "gpu=1"),
        ),
        Truth(3, 329.0, 3, 0.0, 41.5),
        a100("n1", "n2"),
        unplaced={NO_ROOM: (1, 8.0)},
    ),
}
