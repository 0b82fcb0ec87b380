"""Which machines jobs can use: kinds of jobs, groups of kinds that share machines, and blocks of machines."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from cranny.core.fast.placement_arrays import choice_table, machine_arrays
from cranny.core.protocol import FirstChoices
from cranny.core.snapshot import Snapshot
from cranny.model.arrays import Flags, Ints
from cranny.sim.fast.kernel_setup import JobColumns
from cranny.sim.fast.replay_arrays import KindArrays

RESTRICTING = ("gpu_type", "partition")


def kinds_of(jobs: JobColumns, empty: Snapshot) -> tuple[Ints, list[int]]:
    """Return the kind of each job, (jobs,), and the machines of each kind as sets; those of kind 0 are all."""
    every = (1 << len(empty.cluster.machines)) - 1
    columns = jobs.columns.select(RESTRICTING)
    if columns.null_count().row(0) == (columns.height,) * len(RESTRICTING):
        return np.zeros(columns.height, dtype=np.int64), [every]
    found = columns.with_row_index("row").unique(RESTRICTING, keep="first", maintain_order=True)
    machines = [empty.eligible(jobs[row]) & every for row in found["row"].to_list()]
    sets = list(dict.fromkeys([every, *machines]))
    found = found.select(*RESTRICTING, kind=pl.Series([sets.index(each) for each in machines], dtype=pl.Int64))
    kind = columns.join(found, on=RESTRICTING, how="left", nulls_equal=True, maintain_order="left")["kind"]
    return kind.to_numpy().astype(np.int64), sets


def kind_arrays(kind: Ints, sets: Sequence[int], empty: Snapshot, placer: FirstChoices) -> KindArrays:
    """Return the kinds with all machines idle."""
    cluster = empty.cluster
    sizes = np.array([machine.gpus for machine in cluster.machines], dtype=np.int64)
    inside = np.array([empty.membership(each) for each in sets])
    size = np.array([_common_size(sizes[own]) for own in inside], dtype=np.int64)
    machines = [machine_arrays(sizes, own) for own in inside]
    shared = inside.astype(np.int64) @ inside.T.astype(np.int64) > 0  # (kinds, kinds)
    is_used = np.bincount(kind, minlength=len(sets)) > 0
    member_of, block = np.unique(inside, axis=1, return_inverse=True)  # (kinds, blocks), (machines,)
    block = block.reshape(-1)
    own_kinds = [np.flatnonzero(member_of[:, each]) for each in range(member_of.shape[1])]
    largest = int(sizes.max())
    return KindArrays(
        size=size,
        capacity=inside @ sizes,
        group=_groups(shared & is_used & is_used[:, None]),
        shares=np.array(
            [sum(1 << each for each in np.flatnonzero(row).tolist()) for row in shared], dtype=np.int64
        ),
        sets=np.array([each.sets for each in machines]),
        first_word=np.array([each.first_word for each in machines]),
        members=np.array([each.members for each in machines]),
        inside=inside,
        refused=np.full((len(sets), cluster.gpus + 1), -1, dtype=np.int64),
        choices=np.array([choice_table(placer, each, largest) for each in size.tolist()]),
        has_block=np.ascontiguousarray(member_of),
        block_free=np.bincount(block, weights=sizes).astype(np.int64),
        first_kind=np.cumsum([0, *(len(each) for each in own_kinds)]),
        kind=np.concatenate(own_kinds),
        block=block,
        machine_size=sizes,
        share=cluster.share_unit // sizes,
    )


def _common_size(sizes: Ints) -> int:
    """Return the size that machines have in common; 0 if they differ, or there are none."""
    return int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else 0


def _groups(shared: Flags) -> Ints:
    """Return the group of each kind, (kinds,): those that share machines, directly or through others."""
    group = np.full(len(shared), -1, dtype=np.int64)
    count = 0
    for kind in range(len(shared)):
        if group[kind] < 0:
            reached = np.zeros(len(shared), dtype=np.bool_)
            reached[kind] = True
            while (further := reached | shared[reached].any(axis=0)).sum() > reached.sum():
                reached = further
            group[reached] = count
            count += 1
    return group
