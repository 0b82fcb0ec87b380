"""Affinity graphs: Algorithm 1, Theorem 1 on curves, and graphs with loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.model.circle import Circle
from cranny.model.errors import InputError
from cranny.network.interleave.affinity import AffinityGraph, SharedLink, has_loop, shared_links
from cranny.network.interleave.shifts import choose, interleave, scores
from cranny.network.interleave.unified_circle import DemandCurve, curve

C = 50.0
TIMES_MS = (40, 60, 80, 120)


def up(iteration_s: float, share: float, start: float = 0.0, gbps: float = C) -> Circle:
    return Circle(iteration_s, ((start * iteration_s, (start + share) * iteration_s, gbps),))


def link(name: str, gbps: float = C, **circles: Circle) -> SharedLink:
    return SharedLink(name, gbps, circles)


HALF = up(0.2, 0.5)


@st.composite
def trees(draw: st.DrawFn) -> list[SharedLink]:
    """Draw links of two or three jobs without a loop: each shares at most one job with those before it."""
    made: list[SharedLink] = []
    times: dict[str, float] = {}
    for number in range(draw(st.integers(1, 5))):
        jobs = [f"j{len(times) + new}" for new in range(draw(st.integers(1, 2) if times else st.integers(2, 3)))]
        if times and (len(jobs) < 2 or draw(st.booleans())):
            jobs.append(draw(st.sampled_from(sorted(times))))
        for job in jobs:
            times.setdefault(job, draw(st.sampled_from(TIMES_MS)) / 1e3)
        circles = {
            job: up(
                times[job], draw(st.sampled_from([0.25, 0.5, 0.75])), draw(st.sampled_from([0.0, 0.125, 0.25]))
            )
            for job in jobs
        }
        made.append(SharedLink(f"l{number}", C, circles))
    return made


def looped(rng: np.random.Generator, jobs: int, links: int) -> list[SharedLink]:
    """Draw links that share jobs at will."""
    times = {f"j{i}": float(rng.choice([0.1, 0.2])) for i in range(jobs)}
    made = []
    for number in range(links):
        on = rng.choice(jobs, int(rng.integers(2, 4)), replace=False).tolist()
        circles = {f"j{i}": up(times[f"j{i}"], rng.uniform(0.2, 0.6), rng.uniform(0.0, 0.4)) for i in on}
        made.append(SharedLink(f"l{number}", C, circles))
    return made


def turned_onto(first: DemandCurve, second: DemandCurve) -> bool:
    """Say whether one curve is a rotation of the other."""
    if len(first.at_s) != len(second.at_s):
        return False
    for by in range(len(first.at_s)):
        lengths = np.roll(second.lengths_s, by)
        gbps = np.roll(second.gbps, by)
        if np.allclose(first.lengths_s, lengths, atol=1e-7) and np.allclose(first.gbps, gbps, atol=1e-6):
            return True
    return len(first.at_s) == 1


def ring_of_pieces(found: DemandCurve) -> DemandCurve:
    """Return a curve whose first and last piece are one if their demand is: time goes round."""
    if len(found.at_s) > 1 and abs(found.gbps[0] - found.gbps[-1]) < 1e-6:
        at_s = found.at_s[1:] - found.at_s[1]
        return DemandCurve(at_s, found.gbps[1:], found.perimeter_s)
    return found


def test_the_paper_s_example_walks_from_job_to_job() -> None:
    """Appendix A: l1 ties j1 and j2, l2 ties j2 and j3."""
    graph = AffinityGraph.of([link("l1", j1=HALF, j2=HALF), link("l2", j2=HALF, j3=up(0.2, 0.5, 0.25))])
    (first, second), shifts_s = graph.weights_s, graph.traverse()
    assert shifts_s["j1"] == 0.0
    assert shifts_s["j2"] == pytest.approx((-first["j1"] + first["j2"]) % 0.2)
    expected = (-first["j1"] + first["j2"] - second["j2"] + second["j3"]) % 0.2
    assert shifts_s["j3"] == pytest.approx(expected)


def test_separate_parts_of_a_graph_each_have_a_job_that_stands_still() -> None:
    found = interleave([link("l1", a=HALF, b=HALF), link("l2", c=HALF, d=HALF)])
    assert found is not None
    assert found.method == "tree"
    assert found.shifts_s == pytest.approx({"a": 0.0, "b": 0.1, "c": 0.0, "d": 0.1})
    assert found.scores == (1.0, 1.0)


@settings(max_examples=examples(60))
@given(trees())
def test_theorem_1_every_link_gets_the_curve_that_its_optimiser_chose(links: list[SharedLink]) -> None:
    assert not has_loop(links)
    found = interleave(links, loops="drop")
    assert found is not None
    assert set(found.shifts_s) == {job for each in links for job in each.circles}
    for each, fit, reached in zip(found.graph.links, found.fits, found.scores, strict=True):
        circles = tuple(each.circles.values())
        chosen = curve(circles, fit.shifts_s, fit.unified)
        final = curve(circles, [found.shifts_s[job] for job in each.circles], fit.unified)
        assert turned_onto(ring_of_pieces(chosen), ring_of_pieces(final))
        assert reached == pytest.approx(fit.score, abs=1e-9)
    assert found.score <= found.bound + 1e-9


def test_shifts_lie_within_an_iteration() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        links = looped(rng, 6, 5)
        found = interleave(links)
        assert found is not None
        for each in links:
            for job, circle in each.circles.items():
                assert 0.0 <= found.shifts_s[job] < circle.iteration_s


def test_links_whose_circles_stretch_iterations_differently_still_get_what_they_want() -> None:
    links = [
        link("l1", a=up(0.1013, 0.5), b=up(0.1029, 0.5, 0.2)),
        link("l2", b=up(0.1029, 0.5), c=up(0.1531, 0.5, 0.1)),
    ]
    found = interleave(links)
    assert found is not None
    assert found.error > 0.004
    assert found.scores == pytest.approx([fit.score for fit in found.fits], abs=1e-9)
    for each in links:
        assert all(0.0 <= found.shifts_s[job] < circle.iteration_s for job, circle in each.circles.items())


def test_two_links_with_the_same_jobs_are_a_loop_which_the_paper_drops_and_we_settle_at_no_loss() -> None:
    links = [link("l1", a=HALF, b=HALF), link("l2", a=HALF, b=HALF)]
    assert has_loop(links)
    assert interleave(links, loops="drop") is None
    found = interleave(links)
    assert found is not None
    assert (found.method, found.score) == ("forest", 1.0)


def test_three_half_up_jobs_in_a_ring_cannot_all_be_apart_and_two_links_of_three_are() -> None:
    links = [link("l1", a=HALF, b=HALF), link("l2", b=HALF, c=HALF), link("l3", c=HALF, a=HALF)]
    assert has_loop(links)
    found = interleave(links)
    assert found is not None
    assert found.bound == 1.0
    assert sum(found.scores) == pytest.approx(2.5)  # by hand: shifts of 0, 1/2 and anything lose 1/2 in all


def test_a_loaded_link_is_served_before_a_light_one() -> None:
    heavy, light = HALF, up(0.2, 0.5, gbps=26.0)
    links = [link("light", a=light, b=light), link("heavy", a=up(0.2, 0.5), b=up(0.2, 0.5, 0.25))]
    found = interleave(links)
    assert found is not None
    assert heavy.peak_gbps > light.peak_gbps
    assert found.scores[1] == pytest.approx(1.0)


def test_settled_graphs_come_near_the_best_of_all_shifts() -> None:
    rng = np.random.default_rng(4)
    for _ in range(5):
        links = looped(rng, 4, 4)
        found = interleave(links)
        assert found is not None
        jobs = list(found.shifts_s)
        grid = [np.arange(0.0, 0.2, 0.2 / 8) for _ in jobs[1:]]
        best = max(
            sum(scores(found.graph, dict(zip(jobs, (0.0, *others), strict=True)))) / len(links)
            for others in itertools.product(*grid)
        )
        assert found.score >= best - 0.06
        assert found.score <= found.bound + 1e-9


def test_settling_keeps_candidates_that_dropping_would_lose() -> None:
    """Of random graphs most have loops; the settled ones lose little against links on their own."""
    rng = np.random.default_rng(6)
    kept, lost = 0, []
    for _ in range(60):
        links = looped(rng, 8, 5)
        found = interleave(links)
        assert found is not None
        unshifted = sum(scores(found.graph, {})) / len(links)
        assert found.score >= unshifted - 1e-9
        if interleave(links, loops="drop") is None:
            kept += 1
            lost.append(found.bound - found.score)
    assert kept >= 30
    assert np.mean(lost) <= 0.03


def test_the_candidate_whose_links_score_best_is_chosen_and_gets_its_shifts() -> None:
    full, apart = up(0.2, 1.0), [link("l1", a=HALF, b=HALF)]
    found = choose([[link("l1", a=full, b=full)], apart, [link("l2", a=HALF, b=HALF)]])
    assert found is not None
    assert found.number == 1  # of equal ones the first
    assert found.interleaving.shifts_s == pytest.approx({"a": 0.0, "b": 0.1})
    assert found.fits == pytest.approx((0.0, 1.0, 1.0))


def test_candidates_with_loops_are_dropped_only_if_that_is_wanted() -> None:
    ring = [link("l1", a=HALF, b=HALF), link("l2", a=HALF, b=HALF)]
    worse = [link("l1", a=up(0.2, 0.75), b=HALF)]
    kept, dropped = choose([ring, worse]), choose([ring, worse], loops="drop")
    assert kept is not None
    assert dropped is not None
    assert (kept.number, dropped.number) == (0, 1)
    assert dropped.fits[0] is None
    assert choose([ring], loops="drop") is None


def test_choosing_settles_as_much_as_it_must_and_finds_what_settling_all_finds() -> None:
    rng = np.random.default_rng(8)
    for _ in range(10):
        candidates = [looped(rng, 5, 4) for _ in range(4)]
        found = choose(candidates)
        every = [each.score for links in candidates if (each := interleave(links)) is not None]
        assert found is not None
        assert found.interleaving.score == pytest.approx(max(every), abs=2e-3)


def test_no_shared_link_means_no_shift_and_full_score() -> None:
    found = interleave([link("l1", a=HALF)])
    assert found is not None
    assert (found.shifts_s, found.score, found.bound, found.error) == ({}, 1.0, 1.0, 0.0)


def test_links_are_shared_if_two_jobs_send_over_them() -> None:
    by_job = {"a": {0: HALF, 2: HALF}, "b": {0: HALF, 1: HALF}, "c": {1: Circle(0.2), 2: HALF}}
    found = shared_links(by_job, (10.0, 20.0, 30.0), ("x", "y", "z"))
    assert [(each.name, each.gbps, list(each.circles)) for each in found] == [
        ("x", 10.0, ["a", "b"]),
        ("z", 30.0, ["a", "c"]),
    ]


def test_a_job_with_two_iteration_times_is_refused() -> None:
    with pytest.raises(InputError, match=r"job 'a' has two iteration times: 0\.2 s, and 0\.3 s on link 'l2'"):
        interleave([link("l1", a=HALF, b=HALF), link("l2", a=up(0.3, 0.5), c=HALF)])


def test_reported_scores_are_of_the_demand_over_time_and_not_of_its_mean_over_angles() -> None:
    # Up for 51.7 % each: at best they overlap for 3.4 % of the time, which angles of 5 degrees hide in part.
    jobs = {"a": up(0.2, 0.517), "b": up(0.2, 0.517, 0.003)}
    found = interleave([SharedLink("l1", C, jobs)])
    assert found is not None
    at_s = np.linspace(0.0, 0.2, 20_001)[:-1] + 5e-6
    demand = sum(
        np.array([circle.demand((moment - found.shifts_s[job]) % 0.2) for moment in at_s])
        for job, circle in jobs.items()
    )
    assert found.scores[0] == pytest.approx(1.0 - np.maximum(demand / C - 1.0, 0.0).mean(), abs=1e-4)
    assert found.scores[0] == pytest.approx(1.0 - 0.034, abs=2e-3)
