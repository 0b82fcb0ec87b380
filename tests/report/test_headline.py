import math
from collections.abc import Sequence

import pytest
from tests.report.synthetic import FakeResult
from tests.report.test_table import changed, renamed

from cranny.report.headline import caution, finding


def runs(base: FakeResult, **values: tuple[float, float]) -> list[FakeResult]:
    return [
        renamed(changed(base, mean_used_machines=used, mean_jct_s=jct_s), policy=name.replace("_", "-"))
        for name, (used, jct_s) in values.items()
    ]


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_two_policies_read_as_a_plain_comparison(results: Sequence[FakeResult]) -> None:
    pair = runs(results[0], cranny=(148.0, 103.0), consolidate_idle=(301.0, 100.0))
    assert plain(finding(pair)) == (
        "Cranny keeps 148 machines on where consolidate-idle keeps 301: 51 % fewer, "
        "at 3 % longer mean completion time."
    )


def test_the_nearest_rival_is_named_as_well_as_the_furthest(results: Sequence[FakeResult]) -> None:
    three = runs(results[0], cranny=(148.0, 90.0), best_fit=(155.0, 100.0), consolidate_idle=(301.0, 95.0))
    assert plain(finding(three)) == (
        "Cranny keeps 148 machines on, the fewest of 3 policies: 4.5 % fewer than the next, best-fit (155), "
        "and 51 % fewer than consolidate-idle (301); its mean completion time is 5.3 % shorter than that of "
        "consolidate-idle, the shortest of the others."
    )


def test_the_default_policy_is_not_praised_when_another_is_better(results: Sequence[FakeResult]) -> None:
    three = runs(results[0], cranny=(158.0, 100.0), best_fit=(155.6, 99.9), consolidate_idle=(329.3, 120.0))
    assert plain(finding(three)) == (
        "Best-fit keeps the fewest machines on, 155.6; cranny keeps 158, 1.5 % more, though 52 % fewer than "
        "consolidate-idle (329.3); cranny and best-fit have the shortest mean completion time, about the same."
    )


def test_the_default_policy_may_be_the_worst(results: Sequence[FakeResult]) -> None:
    three = runs(results[0], cranny=(200.0, 100.0), a=(100.0, 50.0), b=(150.0, 60.0))
    assert "100 % more, the most of 3 policies" in plain(finding(three))


def test_equal_policies_are_called_equal(results: Sequence[FakeResult]) -> None:
    pair = runs(results[0], cranny=(100.0, 50.0), a=(100.1, 50.0))
    assert plain(finding(pair)) == "Both policies keep about 100 machines on, at the same mean completion time."


def test_without_the_default_policy_the_fewest_machines_lead(results: Sequence[FakeResult]) -> None:
    pair = runs(results[0], a=(200.0, 50.0), b=(100.0, 50.0))
    assert plain(finding(pair)).startswith("B keeps 100 machines on where a keeps 200: 50 % fewer")


def test_equal_completion_times_are_said_once(results: Sequence[FakeResult]) -> None:
    three = runs(results[0], cranny=(100.0, 50.0), a=(150.0, 50.0), b=(200.0, 50.0))
    assert plain(finding(three)).endswith("; mean completion times are about the same.")


def shared(base: FakeResult, network: str, **values: tuple[float, float]) -> list[FakeResult]:
    return [
        renamed(changed(base, mean_jct_s=jct_s, mean_comm_slowdown=slowdown), policy=name, network=network)
        for name, (jct_s, slowdown) in values.items()
    ]


@pytest.mark.parametrize("network", ["steady", "phases"])
def test_where_links_are_shared_completion_time_and_slowdown_lead(
    results: Sequence[FakeResult], network: str
) -> None:
    three = shared(
        results[0], network, cranny=(4 * 3600.0, 1.6), netpack=(3 * 3600.0, 1.2), random=(6 * 3600.0, 2.4)
    )
    assert plain(finding(three)) == (
        "Netpack has the shortest mean completion time, 3.00 h: 25 % shorter than cranny (4.00 h) and 50 % "
        "shorter than random (6.00 h); netpack has the least slowdown, 1.200: 25 % less than cranny (1.600) and "
        "50 % less than random (2.40)."
    )


def test_ties_are_said_plainly_where_links_are_shared(results: Sequence[FakeResult]) -> None:
    three = shared(results[0], "phases", themis=(50_000.0, 1.2), cassini=(49_990.0, 1.2), ideal=(80_000.0, 1.2))
    assert plain(finding(three)) == (
        "Cassini and themis have the shortest mean completion time, about 13.9 h: 38 % shorter than ideal "
        "(22.2 h); all 3 policies have about the same slowdown, 1.200."
    )


def test_a_single_run_in_phases_tells_of_its_iterations(results: Sequence[FakeResult]) -> None:
    (one,) = shared(results[0], "phases", themis=(7300.0, 1.25))
    assert plain(finding([changed(one, mean_iteration_s=0.2913)])) == (
        "Themis completes a job in 2.03 h on average; jobs run 1.250 times as long as on one machine, and an "
        "iteration takes 291 ms on average."
    )


def test_a_single_run_is_described(results: Sequence[FakeResult]) -> None:
    one = [changed(results[0], mean_used_machines=6.0, mean_fragmentation=0.117, mean_jct_s=7300.0)]
    assert plain(finding(one)) == (
        "Cranny keeps 6 of 12 machines on, leaves 12 % of their GPUs idle and completes a job in 2.03 h on "
        "average."
    )


def test_runs_without_numbers_are_not_compared(results: Sequence[FakeResult]) -> None:
    pair = runs(results[0], cranny=(math.nan, math.nan), a=(5.0, 6.0))
    assert "nothing to compare" in finding(pair)


def test_different_numbers_of_finished_jobs_are_pointed_out(results: Sequence[FakeResult]) -> None:
    pair = [changed(results[0], jobs_done=120.0), changed(results[1], jobs_done=80.0)]
    assert "consolidate-idle 80 of 120" in caution(pair)
    assert caution(results) == ""


def test_who_skips_jobs_that_others_run_is_not_praised(results: Sequence[FakeResult]) -> None:
    cranny = renamed(changed(results[0], mean_used_machines=5.0, jobs_skipped=151.0), policy="cranny")
    others = [renamed(changed(results[0], mean_used_machines=8.0), policy=name) for name in ("hived", "comb")]
    assert "cranny" not in finding([cranny, *others]).lower()
    assert "Cranny skips jobs that others run, so it is never called best." in caution([cranny, *others])


def rounds(base: FakeResult) -> list[FakeResult]:
    """Three runs of which one decides every 6 min: at the arrivals it holds nothing yet."""
    values = {"cranny": (1.5, 3.3, 100.0), "las": (2.0, 15.2, 90.0), "gavel": (0.0, 2.5, 80.0)}
    return [
        renamed(
            changed(base, mean_used_machines=used, machine_hours=hours, mean_jct_s=jct_s),
            policy=name,
            period_s=360.0 if name == "gavel" else 0.0,
        )
        for name, (used, hours, jct_s) in values.items()
    ]


def test_with_rounds_machine_hours_are_compared_and_not_what_is_held_at_arrivals(
    results: Sequence[FakeResult],
) -> None:
    three = rounds(results[0])
    assert plain(finding(three)) == (
        "Gavel needs the fewest machine-hours, 2.5; cranny needs 3.3, 32 % more, though 78 % fewer than las (15.2)"
        "; cranny's mean completion time is 25 % longer than that of gavel, the shortest of the others."
    )
    assert caution(three) == (
        "Gavel decides in rounds, not when a job arrives: instead of values at arrivals there are means over time"
        ", each to its own last end, so compare machine-hours."
    )


def test_a_single_run_in_rounds_is_described_over_time(results: Sequence[FakeResult]) -> None:
    gavel = rounds(results[0])[2]
    told = plain(finding([changed(gavel, time_mean_used_machines=1.7, time_mean_fragmentation=0.25)]))
    assert told.startswith("Gavel keeps 1.7 of 12 machines on, leaves 25 % of their GPUs idle")


def test_nothing_is_so_many_percent_more_than_nothing(results: Sequence[FakeResult]) -> None:
    pair = runs(results[0], cranny=(1.5, 100.0), a=(0.0, 0.0))
    assert plain(finding(pair)) == "Cranny keeps 1.5 machines on where a keeps 0: 1.5 more."
    three = runs(results[0], cranny=(1.5, 100.0), a=(0.0, 100.0), b=(2.0, 100.0))
    assert "cranny keeps 1.5, 1.5 more, though 25 % fewer than b (2)" in plain(finding(three))
