"""Jobs phase by phase: closed forms, a literal stepping through time, and what must always hold."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.phases import stepped

from cranny.model.circle import Circle
from cranny.model.errors import InputError
from cranny.network.phases.outcome import PhasedRun
from cranny.network.phases.pacing_period import with_periods
from cranny.network.phases.phased_run import long_run, run_for
from cranny.network.phases.segments import PhasedJob, Segment

LINK = 50.0
T = 0.25
HALF = Circle.half_up(T, LINK)


def pair(shift_s: float = 0.0) -> list[PhasedJob]:
    return [PhasedJob({0: HALF}), PhasedJob({0: HALF}, shift_s)]


def means(played: PhasedRun) -> list[float]:
    return [outcome.mean_s for outcome in played.outcomes]


def test_a_job_alone_takes_its_iteration_time() -> None:
    played = long_run([PhasedJob({0: Circle(0.255, ((0.141, 0.255, 40.0),))})], [LINK])
    assert means(played) == pytest.approx([0.255])
    assert played.outcomes[0].above_gbit == 0.0


@pytest.mark.parametrize(
    ("shift", "link_gbps", "times_longer"),
    [(0.0, LINK, 1.5), (0.5, LINK, 1.0), (0.25, LINK, 1.25), (0.0, 100.0, 1.0)],
)
def test_two_half_up_jobs_share_a_link(shift: float, link_gbps: float, times_longer: float) -> None:
    # With d of both up phases side by side, each takes d longer: half the rate for 2 d.
    played = long_run(pair(shift * T), [link_gbps])
    assert means(played) == pytest.approx([times_longer * T] * 2, rel=1e-9)
    assert played.cycle_s == pytest.approx(times_longer * T)


def test_three_jobs_up_for_a_third_each() -> None:
    third = Circle(0.3, ((0.2, 0.3, LINK),))
    together = long_run([PhasedJob({0: third})] * 3, [LINK])
    assert means(together) == pytest.approx([0.2 + 3 * 0.1] * 3)
    apart = long_run([PhasedJob({0: third}, shift_s) for shift_s in (0.0, 0.1, 0.2)], [LINK])
    assert means(apart) == pytest.approx([0.3] * 3)


def test_iterations_of_40_and_60_ms_interleave_on_120_ms() -> None:
    # The first is up at 0-10, 40-50 and 80-90 ms, the second at 10-20 and 70-80 ms.
    first, second = Circle(0.04, ((0.0, 0.01, LINK),)), Circle(0.06, ((0.0, 0.01, LINK),))
    played = long_run([PhasedJob({0: first}), PhasedJob({0: second}, 0.01)], [LINK])
    assert means(played) == pytest.approx([0.04, 0.06])
    assert played.cycle_s == pytest.approx(0.12)


def test_a_narrow_link_slows_a_job_that_asks_for_more() -> None:
    played = long_run([PhasedJob({0: HALF})], [LINK / 2])
    assert means(played) == pytest.approx([1.5 * T])


def test_a_slower_link_elsewhere_slows_the_whole_segment() -> None:
    # Over links 0 and 1 in the proportion 2:1; link 1 has half of what it is asked for.
    job = PhasedJob({0: Circle(1.0, ((0.5, 1.0, 40.0),)), 1: Circle(1.0, ((0.5, 1.0, 20.0),))})
    assert job.segments == (Segment(0.5, ()), Segment(0.5, ((0, 40.0), (1, 20.0))))
    assert means(long_run([job], [100.0, 10.0])) == pytest.approx([0.5 + 1.0])


def test_a_job_with_a_small_demand_gets_it_and_the_other_takes_the_rest() -> None:
    # 50 Gbps: 10 for the first, 40 for the second, whose 25 gigabits take 0.625 s instead of 0.5 s.
    small, large = Circle(1.0, ((0.0, 1.0, 10.0),)), Circle(1.0, ((0.0, 0.5, LINK),))
    played = long_run([PhasedJob({0: small}), PhasedJob({0: large})], [LINK])
    assert means(played) == pytest.approx([1.0, 1.125])


def test_offered_above_capacity_is_what_was_asked_for_and_not_given() -> None:
    # Unshifted, both ask for 50 and get 25 for T seconds.
    played = long_run(pair(), [LINK])
    assert [outcome.above_gbit_per_iteration for outcome in played.outcomes] == pytest.approx([25.0 * T] * 2)
    assert [outcome.above_gbit for outcome in long_run(pair(T / 2), [LINK]).outcomes] == pytest.approx(
        [0.0, 0.0], abs=1e-9
    )


def test_whole_cycles_are_gone_over_in_one_step() -> None:
    jobs = [
        PhasedJob({0: Circle(0.04, ((0.02, 0.04, LINK),))}),
        PhasedJob({0: Circle(0.06, ((0.03, 0.06, LINK),))}, 0.01),
    ]
    quick, literal = run_for(jobs, [LINK], 30.0), run_for(jobs, [LINK], 30.0, links=True)
    assert quick.cycle_s is not None
    for fast, slow in zip(quick.outcomes, literal.outcomes, strict=True):
        assert fast.iterations == slow.iterations
        assert len(fast.times_s) < len(slow.times_s) / 5
        assert fast.mean_s == pytest.approx(slow.mean_s, rel=1e-9)
        assert fast.above_gbit == pytest.approx(slow.above_gbit, rel=1e-6)
        assert fast.quantile_s(0.99) == pytest.approx(slow.quantile_s(0.99))


def scaled(circle: Circle, by: float) -> Circle:
    """Return a circle with every demand multiplied."""
    return Circle(circle.iteration_s, tuple((start, end, gbps * by) for start, end, gbps in circle.arcs))


@st.composite
def circles_of_a_job(draw: st.DrawFn, links: int) -> dict[int, Circle]:
    """One to three up phases, on one or two links, in hundredths of an iteration of 80 to 200 ms."""
    whole_s = draw(st.integers(8, 20)) / 100
    edges = sorted(draw(st.sets(st.integers(0, 20), min_size=2, max_size=6)))
    arcs = tuple(
        (whole_s * (a / 20), whole_s * (b / 20), float(draw(st.sampled_from([10, 25, 50, 60]))))
        for a, b in zip(edges[::2], edges[1::2], strict=False)
    )
    on = draw(st.sets(st.integers(0, links - 1), min_size=1, max_size=2))
    return {link: scaled(Circle(whole_s, arcs), 1.0 if link == min(on) else 0.5) for link in sorted(on)}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[PhasedJob], list[float]]:
    jobs = [
        PhasedJob(draw(circles_of_a_job(2)), draw(st.integers(0, 10)) / 100)
        for _ in range(draw(st.integers(2, 4)))
    ]
    return jobs, [LINK, draw(st.sampled_from([30.0, 80.0]))]


# A step late decides whether up phases of the third job meet those of the others: 0.837 s in steps of half a
# millisecond, 0.821 s in steps of a tenth, 0.81915 s in steps of a twentieth, as here.
MEETS_BY_A_STEP = (
    [
        PhasedJob({0: Circle(0.15, ((0.0375, 0.06, 50.0), (0.0825, 0.1275, 50.0)))}, 0.05),
        PhasedJob({0: Circle(0.15, ((0.0225, 0.06, 60.0), (0.0975, 0.1125, 50.0)))}, 0.07),
        PhasedJob({0: Circle(0.17, ((0.085, 0.0935, 50.0), (0.119, 0.17, 60.0)))}, 0.08),
    ],
    [50.0, 30.0],
)


@settings(max_examples=examples(40))
@given(cases())
@example(MEETS_BY_A_STEP)
def test_playing_agrees_with_stepping_through_time(case: tuple[list[PhasedJob], list[float]]) -> None:
    jobs, link_gbps = case
    fast = [outcome.times_s for outcome in run_for(jobs, link_gbps, 1.0, links=True).outcomes]
    # Each edge of each job comes up to a step late or early.
    edges = sum(len(job.segments) for job in jobs) + 1

    def agree(step_s: float) -> bool:
        slow = stepped([(job.circles, job.shift_s) for job in jobs], link_gbps, 1.0, step_s)
        for exact, times in zip(fast, slow, strict=True):
            common = min(len(exact), len(times))
            off_s = abs(sum(times[:common]) - exact[:common].sum())
            if abs(len(exact) - len(times)) > 1 or off_s > edges * common * step_s / 2:
                return False
        return True

    assert any(map(agree, (0.0005, 0.0001, 0.00005)))


@settings(max_examples=examples(60))
@given(cases())
def test_links_carry_what_jobs_send_and_never_more_than_they_can(
    case: tuple[list[PhasedJob], list[float]],
) -> None:
    jobs, link_gbps = case
    played = run_for(jobs, link_gbps, 3.0, links=True)
    for link, (use, gbps) in enumerate(zip(played.links, link_gbps, strict=True)):
        assert (np.diff(use.at_s) > 0).all()
        assert (use.carried_gbps <= gbps * (1 + 1e-9)).all()
        assert (use.carried_gbps <= use.demand_gbps + 1e-9).all()
        sent = float(use.carried_gbps @ np.diff(use.at_s, append=played.until_s))
        each = [job.circles[link].gigabits if link in job.circles else 0.0 for job in jobs]
        done = [outcome.iterations * gigabits for outcome, gigabits in zip(played.outcomes, each, strict=True)]
        assert sum(done) - 1e-6 <= sent <= sum(done) + sum(each) + 1e-6


@settings(max_examples=examples(40))
@given(cases())
def test_no_iteration_is_shorter_than_alone_and_all_fit_into_the_time(
    case: tuple[list[PhasedJob], list[float]],
) -> None:
    jobs, link_gbps = case
    played = run_for(jobs, link_gbps, 5.0)
    for job, outcome in zip(jobs, played.outcomes, strict=True):
        assert outcome.times_s.min() >= job.iteration_s * (1 - 1e-9)
        assert outcome.times_s @ outcome.counts <= outcome.elapsed_s * (1 + 1e-9)


def wandering(shifts_s: Sequence[float] = (0.04, 0.0, 0.03, 0.03)) -> list[PhasedJob]:
    """Return jobs that find no cycle: the first and the last get into step and out of it again, minutes apart."""
    short = Circle(0.08, ((0.032, 0.036, 50.0),))
    three = Circle(0.15, ((0.0, 0.0075, 10.0), (0.06, 0.075, 60.0), (0.09, 0.0975, 50.0)))
    circles: list[dict[int, Circle]] = [
        {1: Circle(0.19, ((0.076, 0.1045, 60.0),))},
        {0: short, 1: scaled(short, 0.5)},
        {1: three},
        {1: Circle(0.15, ((0.015, 0.0675, 60.0),))},
    ]
    return [PhasedJob(each, shift_s) for each, shift_s in zip(circles, shifts_s, strict=True)]


@settings(max_examples=examples(40))
@example((wandering(), [LINK, 30.0]))
@given(cases())
def test_the_long_run_is_a_cycle_or_the_later_half_of_what_was_played(
    case: tuple[list[PhasedJob], list[float]],
) -> None:
    jobs, link_gbps = case
    settled = long_run(jobs, link_gbps)
    if settled.cycle_s is not None:
        assert means(settled) == pytest.approx(means(run_for(jobs, link_gbps, 300.0)), rel=0.01)
        return
    whole = run_for(jobs, link_gbps, settled.until_s, links=True)
    for late, outcome in zip(settled.outcomes, whole.outcomes, strict=True):
        assert late.times_s.tolist() == outcome.times_s[-late.iterations :].tolist()
        assert late.elapsed_s >= 0.3 * settled.until_s


def test_without_a_cycle_the_long_run_is_a_sample_whose_error_falls_like_the_root_of_its_length() -> None:
    # One sample of 400 iterations may be 13 % off: no bound on a single one holds. Over many starts the mean is
    # right, and 16 times the iterations make about a quarter of the error.
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 20, (40, 4)) / 100
    truth = np.array(means(run_for(wandering(), [LINK, 30.0], 30_000.0)))
    error = {
        rounds: np.array(
            [means(long_run(wandering(shifts_s), [LINK, 30.0], rounds=rounds)) for shifts_s in starts.tolist()]
        )
        / truth
        - 1
        for rounds in (200, 3200)
    }
    for rounds, most in ((200, 0.15), (3200, 0.04)):
        spread = error[rounds].std(axis=0)
        assert (spread < most).all()
        assert (np.abs(error[rounds].mean(axis=0)) < 4 * spread / np.sqrt(len(starts)) + 0.005).all()
    assert (error[3200].std(axis=0) < error[200].std(axis=0) / 2).all()


def test_the_same_seed_gives_the_same_times_and_another_seed_others() -> None:
    runs = [run_for(pair(T / 2), [LINK], 60.0, jitter=0.02, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)]
    times = [[outcome.times_s.tobytes() for outcome in run.outcomes] for run in runs]
    assert times[0] == times[1] != times[2]


def test_what_is_drawn_for_a_job_does_not_depend_on_the_others() -> None:
    rng = np.random.default_rng
    shared = run_for([PhasedJob({0: HALF}), PhasedJob({1: HALF})], [LINK, LINK], 600.0, jitter=0.02, rng=rng(3))
    alone = run_for([PhasedJob({0: HALF})], [LINK], 600.0, jitter=0.02, rng=rng(3))
    assert shared.outcomes[0].times_s.tobytes() == alone.outcomes[0].times_s.tobytes()
    assert alone.outcomes[0].mean_s == pytest.approx(T, rel=1e-3)
    assert alone.outcomes[0].times_s.std() == pytest.approx(0.02 * T / 2, rel=0.05)


def test_a_shift_makes_half_up_jobs_faster_and_keeps_them_so_for_1000_iterations_under_jitter() -> None:
    together = long_run(pair(), [LINK])
    assert min(means(together)) >= 1.3 * max(means(long_run(pair(T / 2), [LINK])))
    for seed in range(5):
        held = with_periods(pair(T / 2), jitter=0.02)
        played = run_for(held, [LINK], 1050 * T, jitter=0.02, rng=np.random.default_rng(seed))
        for outcome in played.outcomes:
            assert outcome.iterations >= 1000
            assert together.outcomes[0].mean_s >= 1.3 * outcome.mean_s
            assert outcome.adjustments_per_min < 2
            late = outcome.times_s[len(outcome.times_s) // 2 :]  # no worse later than earlier
            assert late.mean() == pytest.approx(outcome.mean_s, rel=0.01)


def _over(seeds: int, seconds: float, jitter: float, jobs: list[PhasedJob]) -> float:
    """Return the mean iteration time of both jobs over some seeds, in iterations alone."""
    runs = [
        run_for(jobs, [LINK], seconds, jitter=jitter, rng=np.random.default_rng(seed)) for seed in range(seeds)
    ]
    return float(np.mean([means(run) for run in runs])) / T


def test_jitter_alone_brings_unshifted_half_up_jobs_so_far_apart_that_no_agent_can_be_1_3_times_faster() -> None:
    # How far apart the jobs start their up phases wanders over 0 to T / 2, all equally likely in the long run;
    # an iteration takes 1.5 T less that: 1.25 T on average. And no agent can be faster than a job alone.
    alone = [PhasedJob({0: HALF})]
    assert _over(4, 36_000.0, 0.02, pair()) == pytest.approx(1.25, abs=0.02)
    assert _over(4, 36_000.0, 0.02, alone) == pytest.approx(1.0, abs=1e-3)
    assert _over(4, 36_000.0, 0.02, with_periods(pair(T / 2), jitter=0.02)) <= 1.25 / 1.2


@pytest.mark.parametrize(("jitter", "gain"), [(0.02, 1.2), (0.005, 1.3)])
def test_with_jitter_on_both_sides_a_shift_still_pays_over_1000_iterations(jitter: float, gain: float) -> None:
    held = with_periods(pair(T / 2), jitter=jitter)
    assert _over(30, 1000 * T, jitter, pair()) >= gain * _over(30, 1000 * T, jitter, held)


def test_without_an_agent_jitter_carries_shifted_jobs_away() -> None:
    drifting = run_for(pair(T / 2), [LINK], 3600.0, jitter=0.02, rng=np.random.default_rng(0))
    assert min(means(drifting)) > 1.1 * T


def test_by_the_five_percent_rule_alone_a_job_is_adjusted_as_often_as_a_random_walk_leaves_its_bounds() -> None:
    # Steps of 1 % of the iteration, bounds of 5 %: about (5 + 0.58)^2 = 31 steps.
    watched = [PhasedJob({0: HALF}, 0.0, T)]
    played = run_for(watched, [LINK], 7200.0, jitter=0.02, rng=np.random.default_rng(0), hold=False)
    outcome = played.outcomes[0]
    assert outcome.iterations / outcome.adjustments == pytest.approx(31, rel=0.1)


def test_on_the_beat_jobs_of_unlike_times_keep_one_perimeter() -> None:
    jobs = [PhasedJob({0: Circle.half_up(0.100, LINK)}), PhasedJob({0: Circle.half_up(0.1015, LINK)}, 0.05)]
    assert [job.period_s for job in with_periods(jobs)] == pytest.approx([0.1015, 0.1015])
    assert max(means(long_run(with_periods(jobs), [LINK]))) <= 0.1015 * 1.01
    assert max(means(long_run(jobs, [LINK]))) > 0.11  # left alone they drift into each other


def test_quantiles_count_each_iteration_as_often_as_it_came() -> None:
    outcome = run_for(pair(), [LINK], 100.0).outcomes[0]
    assert outcome.quantile_s(0.5) == outcome.quantile_s(0.99) == pytest.approx(1.5 * T)


def test_a_job_that_did_not_finish_an_iteration_has_no_mean() -> None:
    outcome = run_for(pair(), [LINK], T / 2).outcomes[0]
    assert outcome.iterations == 0
    assert np.isnan([outcome.mean_s, outcome.quantile_s(0.5), outcome.above_gbit_per_iteration]).all()


def test_bad_input_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="no job"):
        long_run([], [LINK])
    with pytest.raises(InputError, match="link"):
        long_run([PhasedJob({1: HALF})], [LINK])
    with pytest.raises(InputError, match="generator"):
        run_for(pair(), [LINK], 1.0, jitter=0.1)
    with pytest.raises(InputError, match=r"0\.3 s on link 1"):
        long_run([PhasedJob({0: HALF, 1: Circle(0.3, ((0.0, 0.1, 1.0),))})], [LINK, LINK])
    with pytest.raises(InputError, match="circle"):
        PhasedJob({})
    with pytest.raises(InputError, match="shift"):
        PhasedJob({0: HALF}, -1.0)
