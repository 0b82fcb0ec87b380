"""A cluster guessed from a log that says where its jobs ran.

Each machine gets the most GPUs that jobs held on it at once, which is a lower bound: a machine that was never full
has more, and one that no job used is not there at all. A partition has the machines on which its jobs ran, which
is a lower bound too. A queue of Kubernetes is no set of machines, and is not made one.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import polars as pl

from cranny.cluster_import.imported import FoundMachine, ImportedCluster, about, assemble, in_order
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.validate import counted
from cranny.traces.gpu_types import canonical
from cranny.traces.trace import Trace

LOWER_BOUND = "Guessed from the log: GPUs are the most that jobs held at once on a machine, a lower bound."
PARTITIONS = "Partitions have the machines on which their jobs ran, a lower bound: jobs are placed nowhere else."
NOT_USED = (
    "without a job in the window: taken as idle in it; remove those that were not there yet, or no longer, from "
    "the file of cranny cluster import --log"
)


def guess_cluster(trace: Trace, link_gbps: float = 100.0) -> ImportedCluster:
    """Return the smallest cluster on which the jobs of a log can have run as the log says."""
    held = held_gpus(trace)
    if held.is_empty():
        raise InputError(f"{trace.name}: does not say on which machines jobs ran: give the cluster (--cluster)")
    most = _most_at_once(held)
    held = _one_spelling(held)
    types = _by_machine(held, "gpu_type")
    partitions = _by_machine(held, "partition")
    usual: dict[str, int] = {}  # type -> GPUs that most of its machines have
    kind_of = {name: types[name].most_common(1)[0][0] if types.get(name) else "" for name in most}
    for kind in set(kind_of.values()):
        usual[kind] = Counter(most[name] for name in most if kind_of[name] == kind).most_common(1)[0][0]
    machines = []
    for name in sorted(most, key=in_order):
        fewer = most[name] < usual[kind_of[name]]
        remark = f"at least; others of its kind held {usual[kind_of[name]]}" if fewer else ""
        own = tuple(sorted(partitions.get(name, ())))
        machines.append(FoundMachine(name, most[name], kind_of[name], own, remark))
    several = [name for name, kinds in types.items() if len(kinds) > 1]
    unused = len(trace) - held["row"].n_unique()
    notes = [
        LOWER_BOUND,
        "Machines that no job used are not there; all hang below one switch, since a log knows no racks.",
        *about(several, "with several types in the log, taken as the type of most jobs"),
        *([PARTITIONS] if partitions else ()),
    ]
    if unused:
        notes.append(f"{counted(unused, 'job')} without a start, or without where it ran, or on parts of a GPU.")
    return assemble("from-log", f"the log {trace.name}", machines, None, notes, link_gbps)


def held_gpus(trace: Trace) -> pl.DataFrame:
    """Return a row for each machine that each job held: row of the trace, machine, GPUs, from and to in seconds.

    GPUs of a job whose log gives no counts are divided evenly as far as they go, the first machines one more.
    """
    frame = trace.frame
    if not {"ran_on", "start_s"} <= set(frame.columns):
        return pl.DataFrame(schema={"row": pl.UInt32(), "machine": pl.String(), "gpus": pl.Int64()})
    ends_s = pl.col("start_s") + pl.col("duration_s")
    if "end_s" in frame.columns:
        ends_s = pl.coalesce(pl.col("end_s"), ends_s)
    whole = pl.col("gpu_fraction").fill_null(1.0) >= 1.0 if "gpu_fraction" in frame.columns else pl.lit(value=True)
    kept = [name for name in ("gpu_type", "partition") if name in frame.columns]
    apart = (
        frame.with_row_index("row")
        .filter(pl.col("ran_on").is_not_null() & pl.col("start_s").is_not_null() & whole)
        .select("row", "start_s", ends_s.alias("to_s"), "gpus", pl.col("ran_on").str.split(" "), *kept)
        .explode("ran_on")
        .filter(pl.col("ran_on") != "")
    )
    place = pl.int_range(pl.len()).over("row")
    machines = pl.len().over("row")
    even = pl.col("gpus") // machines + (place < pl.col("gpus") % machines).cast(pl.Int64)
    count = pl.col("ran_on").str.extract(r":([0-9]{1,9})$", 1).cast(pl.Int64)
    return (
        apart.with_columns(
            pl.col("ran_on").str.replace(r":[0-9]{1,9}$", "").alias("machine"),
            pl.coalesce(count, even).alias("held"),
        )
        .select("row", "machine", pl.col("held").alias("gpus"), pl.col("start_s").alias("from_s"), "to_s", *kept)
        .filter((pl.col("gpus") > 0) & (pl.col("to_s") > pl.col("from_s")))
    )


def _most_at_once(held: pl.DataFrame) -> dict[str, int]:
    """Return the most GPUs that were held at once on each machine; a job may start when another ends."""
    starts = held.select("machine", at_s="from_s", change="gpus")
    ends = held.select("machine", at_s="to_s", change=-pl.col("gpus"))
    changes = pl.concat([starts, ends]).sort("machine", "at_s", "change")
    now = changes.with_columns(pl.col("change").cum_sum().over("machine").alias("now"))
    return dict(now.group_by("machine", maintain_order=True).agg(pl.col("now").max()).iter_rows())


def _one_spelling(held: pl.DataFrame) -> pl.DataFrame:
    """Write each type of GPU as most jobs do: A100 and a100 are one type."""
    if "gpu_type" not in held.columns:
        return held
    counts = held["gpu_type"].drop_nulls().value_counts().sort(["count", "gpu_type"], descending=[True, False])
    first: dict[str, str] = {}
    names = {name: first.setdefault(canonical(name), name) for name in counts["gpu_type"]}
    return held.with_columns(pl.col("gpu_type").replace(names))


def _by_machine(held: pl.DataFrame, column: str) -> dict[str, Counter[str]]:
    """Count the values of a column on each machine."""
    found: dict[str, Counter[str]] = {}
    if column not in held.columns:
        return found
    counts = held.drop_nulls(column).group_by("machine", column).len().sort("machine", "len", column)
    for machine, value, jobs in counts.iter_rows():
        found.setdefault(machine, Counter())[value] = jobs
    return found


def with_guessed_cluster(trace: Trace, cut: Callable[[Trace], Trace] | None = None) -> tuple[Cluster, Trace]:
    """Return the cluster that a log tells of, and the log with notes that say how far to trust it.

    The log is `cut` after that: a machine that no job used in a window was there all the same.
    """
    guess = guess_cluster(trace)
    kept = trace if cut is None else cut(trace)
    notes = [*guess.notes, *_not_used(guess.cluster, kept)]
    return guess.cluster, replace(kept, notes=(*kept.notes, *notes))


def _not_used(cluster: Cluster, trace: Trace) -> list[str]:
    """Name the machines on which no job ran in the window of a log."""
    if trace.window is None:
        return []
    held = held_gpus(trace)
    if trace.window.end_s is not None and held.height:
        held = held.filter(pl.col("from_s") < trace.window.end_s)
    used = set(held["machine"])
    return about([each.name for each in cluster.machines if each.name not in used], NOT_USED)
