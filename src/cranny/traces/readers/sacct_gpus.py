"""How many GPUs a job of Slurm had, and of which type.

They come from the first of AllocTRES, ReqTRES, AllocGRES, ReqGRES that names some; the last two are taken as the
job's total, unless they say PER_NODE. `gres/gpu=8` counts all GPUs of a job; where only types are listed, as in
`gres/gpu:h100=8`, these are added up. A job that holds shards has a part of one GPU on each of its machines.
"""

from collections.abc import Sequence

import polars as pl

from cranny.traces.readers.distinct import of_distinct
from cranny.traces.readers.log_mapping import Columns, number, text
from cranny.traces.readers.sacct_fields import GRES, NODES, first_of
from cranny.traces.readers.slurm_rows import PARTS

GPU_PLUGIN = r"\b7696487:"  # how AllocGRES calls GPUs where Slurm's database does not know their name


def gpu_columns(tells_gpus: Sequence[str], names: Sequence[str]) -> Columns:
    """Take how many GPUs a job had and of which type from the first field that names GPUs.

    Where Slurm does not keep account of GPUs, AllocTRES is given but names none, and another field may.
    """
    naming = [of_distinct(text(name), _naming_gpus, pl.String()) for name in tells_gpus]
    first = pl.coalesce(naming)
    count = of_distinct(first, _gpus, pl.Float64())
    nodes = first_of(names, *NODES)
    if nodes and not set(GRES).isdisjoint(tells_gpus):
        each = first.str.contains("PER_NODE:", literal=True).fill_null(value=False)
        count = pl.when(each).then(count * number(nodes).fill_null(1.0)).otherwise(count)
    given = pl.any_horizontal(text(name).is_not_null() for name in tells_gpus)
    return {
        "gpus": pl.coalesce(count, pl.when(given).then(0.0)),
        "gpu_type": pl.coalesce(of_distinct(each, _gpu_type, pl.String()) for each in naming),
        PARTS: of_distinct(first, _parts, pl.String()),
    }


def _naming_gpus(given: pl.Expr) -> pl.Expr:
    """Take a field if it names GPUs, or shards of them."""
    named = given.str.replace_all(GPU_PLUGIN, "gpu:")
    return pl.when(named.str.contains(r"(?:^|[,:/])gpu[=:]|shard")).then(named)


def _gpus(given: pl.Expr) -> pl.Expr:
    """Count the GPUs of a field that names some."""
    # TRES reads gres/gpu=8 or gres/gpu:h100=8, GRES gpu:8 or gpu:h100:8, and some versions gres:gpu:8.
    one, typed = r"(?:^|[,:/])gpu[=:](\d+)(?:[,(]|$)", r"(?:^|[,:/])gpu:[^=:,(]+[=:](\d+)"
    total = given.str.extract(one).cast(pl.Float64, strict=False)
    left = pl.when(total.is_null()).then(given)
    by_type = left.str.extract_all(typed)
    counts = by_type.list.eval(pl.element().str.extract(typed).cast(pl.Float64, strict=False)).list.sum()
    shared = pl.when(left.str.contains("shard", literal=True)).then(left)
    machines_shared = shared.str.extract(r"node[=:](\d+)").cast(pl.Float64, strict=False)
    on = pl.when(shared.is_not_null()).then(machines_shared.fill_null(1.0))
    return pl.coalesce(total, pl.when(counts > 0).then(counts), on, pl.when(given.is_not_null()).then(0.0))


def _gpu_type(given: pl.Expr) -> pl.Expr:
    """Take the type of GPU that a field names; none if it names several."""
    named = r"gpu:([^:=,(]+)[:=]\d"
    return pl.when(given.str.count_matches(named) == 1).then(given.str.extract(named))


def _parts(given: pl.Expr) -> pl.Expr:
    """Take a field if it names MIG instances, or shards and no GPU."""
    # Most rows name no parts, and looking for a plain text is quick.
    likely = pl.when(given.str.contains_any(["g.", "shard"])).then(given)
    parts = likely.str.contains(r"gpu:[^=,]*\dg\.\d+gb")
    shards = likely.str.contains("shard", literal=True) & ~likely.str.contains("gpu[:=]")
    return pl.when(parts | shards).then(likely)
