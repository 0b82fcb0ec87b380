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

LIKELY = ["gpu", "shard", "7696487"]  # one of these is in every text that names GPUs
GPU_PLUGIN = r"\b7696487:"  # how AllocGRES calls GPUs where Slurm's database does not know their name


def gpu_columns(tells_gpus: Sequence[str], names: Sequence[str]) -> Columns:
    """Take how many GPUs a job had and of which type from the first field that names GPUs.

    Where Slurm does not keep account of GPUs, AllocTRES is given but names none, and another field may.
    """
    fields = [text(name) for name in tells_gpus]
    first = pl.coalesce(pl.when(each.str.contains_any(LIKELY)).then(each) for each in fields)
    count = of_distinct(first, _gpus, pl.Float64())
    nodes = first_of(names, *NODES)
    if nodes and not set(GRES).isdisjoint(tells_gpus):
        each_node = first.str.contains("PER_NODE:", literal=True)
        count = pl.when(each_node).then(count * number(nodes).fill_null(1.0)).otherwise(count)
    given = pl.any_horizontal(each.is_not_null() for each in fields)
    return {
        "gpus": pl.coalesce(count, pl.when(given).then(0.0)),
        # The type may stand in another field than the number.
        "gpu_type": pl.coalesce(of_distinct(each, _gpu_type, pl.String()) for each in fields),
        PARTS: of_distinct(first, _parts, pl.String()),
    }


def _naming_gpus(given: pl.Expr) -> pl.Expr:
    """Take a field if it names GPUs, or shards of them."""
    named = given.str.replace_all(GPU_PLUGIN, "gpu:")
    return pl.when(named.str.contains(r"(?:^|[,:/])gpu[=:]|shard")).then(named)


def _gpus(given: pl.Expr) -> pl.Expr:
    """Count the GPUs of a field; null if it names none."""
    # TRES reads gres/gpu=8 or gres/gpu:h100=8, GRES gpu:8 or gpu:h100:8, and some versions gres:gpu:8.
    one, typed = r"(?:^|[,:/])gpu[=:](\d+)(?:[,(]|$)", r"(?:^|[,:/])gpu:[^=:,(]+[=:](\d+)"
    named = _naming_gpus(given)
    total = named.str.extract(one).cast(pl.Float64, strict=False)
    left = pl.when(total.is_null()).then(named)
    by_type = left.str.extract_all(typed)
    counts = by_type.list.eval(pl.element().str.extract(typed).cast(pl.Float64, strict=False)).list.sum()
    shared = pl.when(left.str.contains("shard", literal=True)).then(left)
    machines_shared = shared.str.extract(r"node[=:](\d+)").cast(pl.Float64, strict=False)
    on = pl.when(shared.is_not_null()).then(machines_shared.fill_null(1.0))
    return pl.coalesce(total, pl.when(counts > 0).then(counts), on, pl.when(named.is_not_null()).then(0.0))


def _gpu_type(given: pl.Expr) -> pl.Expr:
    """Take the type of GPU that a field names; none if it names several."""
    named = r"gpu:([^:=,(]+)[:=]\d"
    return pl.when(given.str.count_matches(named) == 1).then(given.str.extract(named))


def _parts(given: pl.Expr) -> pl.Expr:
    """Take a field if it names MIG instances, or shards and no GPU."""
    named = _naming_gpus(given)
    parts = named.str.contains(r"gpu:[^=,]*\dg\.\d+gb")
    shards = named.str.contains("shard", literal=True) & ~named.str.contains("gpu[:=]")
    return pl.when(parts | shards).then(named)
