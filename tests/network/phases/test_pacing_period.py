"""Agents: which jobs they pace, with how much slack, and that they never slow jobs down."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.model.circle import Circle
from cranny.network.phases.outcome import PhasedRun
from cranny.network.phases.pacing_period import compatible, with_agents
from cranny.network.phases.phased_run import long_run
from cranny.network.phases.segments import PhasedJob

LINK = 50.0
T = 0.25


def up(iteration_s: float, share: float, gbps: float = LINK) -> Circle:
    """A job that sends for a share of its iteration, at its end."""
    return Circle(iteration_s, ((iteration_s * (1.0 - share), iteration_s, gbps),))


def over_alone(jobs: Sequence[PhasedJob], run: PhasedRun) -> list[float]:
    return [outcome.mean_s / job.iteration_s for outcome, job in zip(run.outcomes, jobs, strict=True)]


def paced(jobs: Sequence[PhasedJob], links: Sequence[float]) -> list[float]:
    simulate = partial(long_run, link_gbps=links)
    return over_alone(jobs, with_agents(jobs, [True] * len(jobs), links, 0.0, simulate).run)


def joined_by(light: Circle) -> list[PhasedJob]:
    """Two jobs that take turns on a link, and a light one on another link of the second."""
    heavy = up(T, 0.4)
    return [PhasedJob({0: heavy}), PhasedJob({0: heavy, 1: heavy}, T / 2), PhasedJob({1: light}, 0.03)]


@pytest.mark.parametrize("light", [up(0.2, 0.1, 20.0), up(0.2, 0.05), up(0.27, 0.1, 20.0), up(0.31, 0.05)])
def test_a_light_job_elsewhere_does_not_make_agents_let_go_of_those_that_fit(light: Circle) -> None:
    jobs = joined_by(light)
    assert paced(jobs[:2], [LINK, LINK]) == pytest.approx([1.0, 1.0])
    free = over_alone(jobs, long_run(jobs, [LINK, LINK]))
    assert free[:2] == pytest.approx([1.4, 1.4], abs=0.01)
    assert max(paced(jobs, [LINK, LINK])) <= 1.05 + 1e-9  # by a longer period, if need be


def test_a_job_that_keeps_no_perimeter_with_others_is_none_of_them() -> None:
    # 250 and 290 ms share none of four iterations; 250 and 255 ms do.
    jobs = [PhasedJob({0: up(0.25, 0.3)}), PhasedJob({0: up(0.29, 0.2)}), PhasedJob({0: up(0.255, 0.3)})]
    assert compatible(jobs, [True] * 3, [LINK]) == [[0, 2]]
    assert compatible(jobs, [True, True, False], [LINK]) == []
    assert compatible([jobs[0], PhasedJob({1: up(0.25, 0.3)})], [True] * 2, [LINK, LINK]) == []


def test_jobs_on_the_fullest_link_come_first() -> None:
    # 250 ms goes with 260 and with 240 ms, but these not with each other.
    jobs = [
        PhasedJob({0: up(0.25, 0.3), 1: up(0.25, 0.3)}),
        PhasedJob({0: up(0.26, 0.2)}),
        PhasedJob({1: up(0.24, 0.4)}),
    ]
    assert compatible(jobs, [True] * 3, [LINK, LINK]) == [[0, 2]]
    assert compatible(jobs, [True] * 3, [LINK / 2, LINK]) == [[0, 1]]


def test_a_full_link_elsewhere_does_not_keep_other_jobs_from_being_paced() -> None:
    # Two jobs of 400 ms send for 70 % each on a link that the first two do not use, and run freely.
    jobs = [*joined_by(up(0.27, 0.1, 20.0)), PhasedJob({2: up(0.4, 0.7)}), PhasedJob({2: up(0.4, 0.7)}, 0.2)]
    found = paced(jobs, [LINK] * 3)
    assert max(found[:3]) <= 1.07
    assert min(found[3:]) > 1.3


def test_jobs_with_air_between_them_need_less_slack_for_jitter() -> None:
    jobs = [PhasedJob({0: up(T, 0.4)}), PhasedJob({0: up(T, 0.4)}, T / 2)]

    def simulate(each: Sequence[PhasedJob]) -> PhasedRun:
        return long_run(each, [LINK], jitter=0.02, rng=np.random.default_rng(0))

    found = over_alone(jobs, with_agents(jobs, [True] * 2, [LINK], 0.02, simulate).run)
    assert max(found) < 1.03  # four deviations are 4.8 %


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[PhasedJob], list[float], list[bool]]:
    links = draw(st.integers(1, 3))
    jobs = []
    for _ in range(draw(st.integers(2, 5))):
        iteration_s = draw(st.sampled_from([0.2, 0.24, 0.25, 0.26, 0.5]))
        circle = up(iteration_s, draw(st.floats(0.05, 0.6)), draw(st.sampled_from([10.0, LINK])))
        on = draw(st.sets(st.integers(0, links - 1), min_size=1, max_size=2))
        jobs.append(PhasedJob(dict.fromkeys(sorted(on), circle), draw(st.floats(0.0, 0.99)) * iteration_s))
    shifted = draw(st.lists(st.booleans(), min_size=len(jobs), max_size=len(jobs)))
    return jobs, [LINK] * links, shifted


@settings(max_examples=examples(60))
@given(groups())
def test_jobs_with_agents_are_never_slower_than_without(
    group: tuple[list[PhasedJob], list[float], list[bool]],
) -> None:
    jobs, links, shifted = group
    simulate = partial(long_run, link_gbps=links)
    with_them = over_alone(jobs, with_agents(jobs, shifted, links, 0.0, simulate).run)
    assert sum(with_them) <= sum(over_alone(jobs, simulate(jobs))) + 1e-9
    for one in compatible(jobs, shifted, links):
        assert all(shifted[number] for number in one)
