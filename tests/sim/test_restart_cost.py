"""A job that is stopped or moved loses its `restart_s`, whichever order or action stopped it."""

import pytest

from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.event import Event, MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan, Start
from cranny.run import Result, simulate

ONE = Cluster.fat_tree(racks=1, machines_per_rack=1, gpus_per_machine=2)
TWO = Cluster.fat_tree(racks=1, machines_per_rack=2, gpus_per_machine=2)
LONG_S, SHORT_S, ARRIVES_S, RESTART_S = 10_000.0, 500.0, 4_000.0, 60.0
NETWORKS = ("isolated", "steady", "phases")


def jobs(restart_s: float = RESTART_S) -> list[Job]:
    """Return a long job that holds everything, and a short one that comes when that is past a level of las."""
    return [
        Job("long", 2, duration_s=LONG_S, restart_s=restart_s),
        Job("short", 2, submit_s=ARRIVES_S, duration_s=SHORT_S, restart_s=restart_s),
    ]


def finish_s(result: Result) -> dict[str, float]:
    return dict(result.jobs.select("job_id", "finish_s").iter_rows())


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("order", ["las", "srtf"])
def test_a_job_that_is_stopped_for_another_pays_when_it_goes_on(order: str, network: str) -> None:
    result = simulate(ONE, jobs(), "best-fit", network, order=order)
    assert finish_s(result) == pytest.approx(
        {"short": ARRIVES_S + SHORT_S, "long": LONG_S + SHORT_S + RESTART_S}  # the first start of either is free
    )
    assert result.summary["restarts"] == 1
    free = simulate(ONE, jobs(0.0), "best-fit", network, order=order)
    assert finish_s(free)["long"] == pytest.approx(LONG_S + SHORT_S)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_job_that_is_stopped_twice_pays_twice(network: str) -> None:
    later = Job("later", 2, submit_s=6_000.0, duration_s=SHORT_S)
    result = simulate(ONE, [*jobs(), later], "best-fit", network, order="srtf")
    assert finish_s(result)["long"] == pytest.approx(LONG_S + 2 * SHORT_S + 2 * RESTART_S)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_job_that_is_stopped_while_it_restarts_repeats_the_whole_restart(network: str) -> None:
    during = Job("during", 2, submit_s=ARRIVES_S + SHORT_S + 20.0, duration_s=SHORT_S)
    result = simulate(ONE, [*jobs(), during], "best-fit", network, order="srtf")
    assert finish_s(result)["long"] == pytest.approx(LONG_S + 2 * SHORT_S + 20.0 + RESTART_S)


class MovesOnce(BySubmission):
    """Starts jobs on the first machine, and moves the first one when another arrives."""

    def plan(self, view: Snapshot) -> Plan:
        """Start, or move."""
        if not view.waiting:
            return Plan(view.version)
        waiting = view.waiting[0].job
        start = Start(waiting, Placement((0,) * waiting.gpus))
        moves = tuple(Move(job_id, Placement((1, 1))) for job_id in view.running)
        return Plan(view.version, (*moves, start))

    def why_wait(self, job: Job, view: Snapshot) -> str:  # noqa: ARG002 - no job waits
        """Never asked."""
        return ""


@pytest.mark.parametrize("network", NETWORKS)
def test_a_job_that_is_moved_pays(network: str) -> None:
    result = simulate(TWO, jobs(), MovesOnce(), network)
    assert finish_s(result) == pytest.approx({"short": ARRIVES_S + SHORT_S, "long": LONG_S + RESTART_S})
    assert (result.summary["moves"], result.summary["restarts"]) == (1, 0)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_job_whose_machine_fails_pays_and_repeats_what_was_not_saved(network: str) -> None:
    events: list[tuple[float, Event]] = [(2_000.0, MachineFailed(0)), (3_000.0, MachineRepaired(0))]
    result = simulate(ONE, jobs()[:1], "best-fit", network, machine_events=events)  # a checkpoint at 1,800 s
    assert finish_s(result)["long"] == pytest.approx(LONG_S + 200.0 + 1_000.0 + RESTART_S)
