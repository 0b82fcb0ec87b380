import pytest

from cranny.repro.titan.testbed import GPUS, IDLE, MACHINES, SHOWN, PlacementRun, estimates, layouts, run_testbed


@pytest.fixture(scope="module")
def outcomes() -> list[PlacementRun]:
    return run_testbed()


def test_every_layout_fits_the_text() -> None:
    found = list(layouts())
    assert len(found) == len(set(found)) == 11
    assert SHOWN in found
    for free in found:
        assert len(free) == MACHINES
        assert free.count(GPUS) == IDLE
        assert 8 <= sum(free) - IDLE * GPUS < 12


def test_titan_opens_no_idle_machine_for_8_workers_and_keeps_one_for_12(outcomes: list[PlacementRun]) -> None:
    for one in outcomes:
        if one.policy == "titan" and one.workers in (8, 12):
            assert one.machines is not None
            opened = {machine for machine in one.machines if one.free[machine] == GPUS}
            assert len(opened) == (0 if one.workers == 8 else 1)


def test_elasticflow_takes_two_idle_machines_for_8_workers_and_tiresias_the_same_for_vgg16(
    outcomes: list[PlacementRun],
) -> None:
    by = {(one.policy, one.model): one for one in outcomes if one.free == SHOWN and one.workers == 8}
    assert by["consolidate-idle", "vgg16"].machines == (0, 0, 0, 0, 1, 1, 1, 1)
    assert by["tiresias", "vgg16"].machines == by["consolidate-idle", "vgg16"].machines
    assert by["tiresias", "resnet50"].machines != by["consolidate-idle", "resnet50"].machines


def test_the_one_fitted_number_comes_out(outcomes: list[PlacementRun]) -> None:
    found = estimates(outcomes, "throughput", "resnet50", 12)
    assert found["consolidate-idle"].mean == pytest.approx(4422)


def test_four_workers_on_one_machine_do_not_communicate_across(outcomes: list[PlacementRun]) -> None:
    assert estimates(outcomes, "comm_s", "vgg16", 4)["consolidate-idle"].mean == 0.0


def test_machine_hours_are_machines_that_are_on_times_the_training_time(outcomes: list[PlacementRun]) -> None:
    one = next(one for one in outcomes if one.policy == "titan" and one.workers == 8)
    assert one.machines_on == MACHINES - IDLE
    assert one.machine_hours == pytest.approx(5 * 200 * 50_000 / one.throughput / 3600)
