import builtins
import importlib
import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tests.reference.invariants import check

from cranny.core.protocol import Placer
from cranny.core.queue import ORDERS
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import CrannyError, InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies import TABLE, policy

SIMPLE = ("best-fit", "consolidate-idle", "fragments-first", "random")


def state_with(free: list[int], gpus: int = 4) -> ClusterState:
    state = ClusterState(Cluster.single_rack(len(free), gpus))
    for machine, left in enumerate(free):
        if left < gpus:
            taken = gpus - left
            state.place(Job(id=f"on-{machine}", gpus=taken), Placement((machine,) * taken))
    return state


def typed() -> ClusterState:
    machines = (Machine("old", 8, "t4"), Machine("new", 4, "h200"), Machine("newer", 4, "h200"))
    return ClusterState(Cluster.of(Switch("top", machines, (100.0,) * 3)))


def placer(name: str) -> Placer:
    return policy(name)


def placed(name: str, free: list[int], job_gpus: int, gpus: int = 4) -> tuple[int, ...] | None:
    state = state_with(free, gpus)
    job = Job(id="job", gpus=job_gpus)
    placement = placer(name).place(job, state.snapshot())
    if placement is None:
        return None
    state.place(job, placement)
    check(state)
    return placement.machines


# -- best fit -------------------------------------------------------------------------------------------------


def test_best_fit_takes_the_machine_that_the_job_fills_most_tightly() -> None:
    assert placed("best-fit", [4, 3, 2, 1], 1) == (3,)
    assert placed("best-fit", [4, 3, 2, 1], 2) == (2, 2)
    assert placed("best-fit", [4, 3, 2, 1], 4) == (0, 0, 0, 0)


def test_best_fit_takes_the_lowest_of_equal_machines() -> None:
    assert placed("best-fit", [4, 2, 2], 2) == (1, 1)


def test_best_fit_gives_a_large_job_the_emptiest_machines_and_the_rest_the_tightest() -> None:
    assert placed("best-fit", [2, 4, 3, 1], 5) == (1, 1, 1, 1, 3)
    assert placed("best-fit", [2, 4, 3, 1], 6) == (1, 1, 1, 1, 0, 0)
    assert placed("best-fit", [2, 2, 2], 5) == (0, 0, 1, 1, 2)


# -- consolidation on idle machines ---------------------------------------------------------------------------


def test_consolidation_opens_an_idle_machine_though_a_fragment_would_do() -> None:
    assert placed("consolidate-idle", [1, 4, 2], 2) == (1, 1)


def test_consolidation_uses_fragments_when_no_machine_is_idle() -> None:
    assert placed("consolidate-idle", [1, 3, 2], 2) == (1, 1)


def test_consolidation_never_uses_more_machines_than_in_an_empty_cluster() -> None:
    assert placed("consolidate-idle", [2, 2, 2], 4) is None
    assert placed("consolidate-idle", [4, 2, 4], 8) == (0, 0, 0, 0, 2, 2, 2, 2)
    assert placed("consolidate-idle", [4, 3, 3], 8) is None
    assert placed("consolidate-idle", [4, 3, 3], 7) == (0, 0, 0, 0, 1, 1, 1)


def test_consolidation_says_that_free_gpus_are_scattered() -> None:
    view = state_with([2, 2, 2]).snapshot()
    reason = placer("consolidate-idle").why_wait(Job(id="a", gpus=4), view)
    assert reason == "wants 4 GPUs on 1 machine: only 0 idle, and the free GPUs are scattered"


# -- fragments first ------------------------------------------------------------------------------------------


def test_fragments_first_fills_the_largest_fragments_exactly() -> None:
    assert placed("fragments-first", [4, 3, 2, 1], 4) == (1, 1, 1, 3)
    assert placed("fragments-first", [4, 3, 2, 1], 6) == (1, 1, 1, 2, 2, 3)


def test_fragments_first_breaks_the_roomiest_fragment_if_it_fills_none() -> None:
    assert placed("fragments-first", [4, 2, 3], 1) == (2,)


def test_fragments_first_opens_idle_machines_last() -> None:
    assert placed("fragments-first", [4, 4, 1], 2) == (2, 0)
    assert placed("fragments-first", [4, 4, 1], 6) == (2, 0, 0, 0, 0, 1)


# -- random ---------------------------------------------------------------------------------------------------


def test_random_gives_free_gpus_only() -> None:
    for _ in range(20):
        machines = placed("random", [0, 3, 0, 2], 5)
        assert machines is not None
        assert sorted(machines) == [1, 1, 1, 3, 3]


def test_random_draws_by_its_generator_and_goes_on_drawing() -> None:
    view, job = state_with([4] * 8).snapshot(), Job(id="a", gpus=8)
    first, twin, other = (policy("random", rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    draws = [first.place(job, view) for _ in range(4)]
    assert draws == [twin.place(job, view) for _ in range(4)]
    assert draws != [other.place(job, view) for _ in range(4)]
    assert len({placement.machines for placement in draws if placement is not None}) > 1


def test_random_uses_every_gpu_as_often() -> None:
    view, job = state_with([4, 2, 1, 1]).snapshot(), Job(id="a", gpus=1)
    random = policy("random", rng=np.random.default_rng(0))
    drawn = [placement.machines[0] for _ in range(4000) if (placement := random.place(job, view)) is not None]
    shares = np.bincount(drawn, minlength=4) / 4000
    assert shares == pytest.approx([4 / 8, 2 / 8, 1 / 8, 1 / 8], abs=0.03)


# -- all of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIMPLE)
def test_waits_when_gpus_are_short(name: str) -> None:
    view, job = state_with([2, 1, 0]).snapshot(), Job(id="a", gpus=4)
    assert placer(name).place(job, view) is None
    assert placer(name).why_wait(job, view) == "needs 4 GPUs, 3 free"


@pytest.mark.parametrize("name", SIMPLE)
def test_fills_the_cluster_to_the_last_gpu(name: str) -> None:
    assert placed(name, [4, 4, 4], 12) is not None


@pytest.mark.parametrize("name", SIMPLE)
def test_keeps_to_the_type_of_gpu_that_is_asked_for(name: str) -> None:
    state = typed()
    job = Job(id="a", gpus=8, gpu_type="h200")
    placement = placer(name).place(job, state.snapshot())
    assert placement is not None
    assert set(placement.machines) == {1, 2}
    state.place(job, placement)
    check(state)
    more = Job(id="b", gpus=1, gpu_type="h200")
    assert placer(name).place(more, state.snapshot()) is None
    assert placer(name).why_wait(more, state.snapshot()) == "needs 1 h200 GPU, 0 free"


@pytest.mark.parametrize("field", [{"gpu_type": "h200"}, {"speeds": {"h200": 1.0}}])
def test_consolidation_counts_machines_of_the_types_that_can_run_a_job(field: dict[str, Any]) -> None:
    # On machines of 4, a job of 8 needs two, however large the machines of other types are.
    state, job = typed(), Job(id="a", gpus=8, **field)
    placement = placer("consolidate-idle").place(job, state.snapshot())
    assert placement is not None
    assert placement.counts == {1: 4, 2: 4}
    state.place(Job(id="b", gpus=1), Placement((1,)))
    lacks = "needs 8 h200 GPUs, 7 free" if "gpu_type" in field else "needs 8 GPUs, 7 free"
    assert placer("consolidate-idle").why_wait(job, state.snapshot()) == lacks
    state = typed()
    state.place(Job(id="b", gpus=2), Placement((1, 2)))
    smaller = Job(id="a", gpus=6, **field)
    assert "wants 6 GPUs on 2 machines" in placer("consolidate-idle").why_wait(smaller, state.snapshot())


def test_consolidation_counts_machines_as_they_are() -> None:
    # The whole cluster of 8 + 4 + 4 GPUs is three machines, not two of the largest kind.
    placement = placer("consolidate-idle").place(Job(id="a", gpus=16), typed().snapshot())
    assert placement is not None
    assert placement.counts == {0: 8, 1: 4, 2: 4}


@pytest.mark.parametrize("name", SIMPLE)
def test_passes_over_machines_that_are_down(name: str) -> None:
    state = state_with([4, 4, 4])
    state.fail(0)
    state.drain(2)
    placement = placer(name).place(Job(id="a", gpus=4), state.snapshot())
    assert placement is not None
    assert placement.machines == (1, 1, 1, 1)


# -- the table ------------------------------------------------------------------------------------------------


def test_every_module_of_the_folder_is_in_the_table() -> None:
    folder = importlib.import_module("cranny.policies").__path__
    modules = {
        f"cranny.policies.{found.name}" for found in pkgutil.iter_modules(folder) if found.name != "_shared"
    }
    named = {".".join(entry.path.partition(":")[0].split(".")[:3]) for entry in TABLE.values()}
    assert modules == {module for module in named if module.startswith("cranny.policies.")}


@pytest.mark.parametrize("name", TABLE)
def test_every_entry_of_the_table_can_be_made(name: str) -> None:
    made = policy(name)
    module, _, class_name = TABLE[name].path.partition(":")
    assert type(made) is getattr(importlib.import_module(module), class_name)
    assert callable(made.why_wait)
    assert TABLE[name].about
    assert TABLE[name].paper
    assert TABLE[name].order in ORDERS


def test_suggests_the_nearest_policy() -> None:
    with pytest.raises(InputError, match=r"unknown policy 'titn'; did you mean 'titan'\?"):
        policy("titn")
    with pytest.raises(InputError, match=r"known: .*titan"):
        policy("zzzzzz")


@pytest.mark.parametrize("name", TABLE)
def test_refuses_an_unknown_option(name: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"policy '{name}': ")):
        policy(name, no_such_option=1)


def test_says_what_to_install_when_the_solver_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_ortools(
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 - the names that Python uses
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if name.partition(".")[0] == "ortools":
            raise ModuleNotFoundError("No module named 'ortools'", name="ortools")
        return real(name, globals, locals, fromlist or (), level)

    for module in [name for name in sys.modules if name.partition(".")[0] == "ortools"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "cranny.exact.titan", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_ortools)
    with pytest.raises(CrannyError, match=r"policy 'exact' needs 'ortools'.*pip install 'cranny\[exact\]'"):
        policy("exact").place(Job(id="a", gpus=2), state_with([1, 1]).snapshot())
