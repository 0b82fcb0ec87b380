import pytest

from cranny.repro.titan.testbed import GPUS, IDLE, MACHINES, SHOWN, Testbed, layouts, run_testbed

LAYOUTS = list(layouts())


@pytest.fixture(scope="module")
def found() -> Testbed:
    return run_testbed()


def test_every_layout_fits_the_text() -> None:
    assert len(LAYOUTS) == len(set(LAYOUTS)) == 11
    assert SHOWN in LAYOUTS
    for free in LAYOUTS:
        assert len(free) == MACHINES
        assert free.count(GPUS) == IDLE
        assert 8 <= sum(free) - IDLE * GPUS < 12


def test_titan_opens_no_idle_machine_for_8_workers_and_keeps_one_for_12(found: Testbed) -> None:
    for workers in (8, 12):
        for model in ("resnet50", "vgg16"):
            runs = found.of((model, workers), "titan")
            assert len(runs) == len(LAYOUTS)
            for free, run in zip(LAYOUTS, runs, strict=True):
                opened = {machine for machine in run.machines if free[machine] == GPUS}
                assert len(opened) == (0 if workers == 8 else 1)


def test_elasticflow_takes_two_idle_machines_for_8_workers_and_tiresias_the_same_for_vgg16(found: Testbed) -> None:
    by = {
        (cell.scheme, cell.setup[0]): run.machines
        for cell, run in found.runs.items()
        if LAYOUTS[cell.seed] == SHOWN and cell.setup[1] == 8
    }
    assert by["consolidate-idle", "vgg16"] == (0, 0, 0, 0, 1, 1, 1, 1)
    assert by["tiresias", "vgg16"] == by["consolidate-idle", "vgg16"]
    assert by["tiresias", "resnet50"] != by["consolidate-idle", "resnet50"]


def test_the_one_fitted_number_comes_out(found: Testbed) -> None:
    assert found.value(("resnet50", 12), "consolidate-idle", "throughput").mean == pytest.approx(4422)


def test_four_workers_on_one_machine_do_not_communicate_across(found: Testbed) -> None:
    assert found.value(("vgg16", 4), "consolidate-idle", "comm_s").mean == 0.0


def test_machine_hours_are_machines_that_are_on_times_the_training_time(found: Testbed) -> None:
    measures = found.of(("resnet50", 8), "titan")[0].measures
    assert measures["machines_on"] == MACHINES - IDLE
    assert measures["machine_hours"] == pytest.approx(5 * 200 * 50_000 / measures["throughput"] / 3600)
