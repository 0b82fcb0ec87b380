"""CASSINI on top of other policies: which candidate it takes, and which shifts it sends."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import cranny
from cranny.core.protocol import Host
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Shift, Start
from cranny.model.profile import ModelProfile
from cranny.network.interleave.demand import circles
from cranny.network.interleave.unified_circle import curve, unify
from cranny.network.phases.phases_network import Phases
from cranny.policies import TABLE, policy
from cranny.policies import cassini as cassini_policy
from cranny.policies.cassini import Cassini

LINK_GBPS = 50.0


def half_up(job_id: str, gpus: int, iteration_s: float = 0.2, **fields: object) -> Job:
    """A ring that computes for half of its iteration and then sends at the full rate of a link."""
    grad_bytes = iteration_s / 2 * LINK_GBPS * 1e9 / 8 / (2 * (gpus - 1) / gpus)
    profile = ModelProfile("half", grad_bytes=grad_bytes, iteration_ms=iteration_s / 2 * 1e3)
    return Job(id=job_id, gpus=gpus, model=profile, collective="ring", **fields)  # type: ignore[arg-type]


def light(job_id: str, iteration_s: float, share: float) -> Job:
    """A ring of two that sends for a share of its iteration at the full rate of a link."""
    grad_bytes = iteration_s * share * LINK_GBPS * 1e9 / 8
    profile = ModelProfile("light", grad_bytes=grad_bytes, iteration_ms=iteration_s * (1 - share) * 1e3)
    return Job(id=job_id, gpus=2, model=profile, collective="ring")


def racks(count: int) -> Cluster:
    """Racks of two machines with one GPU each, whose uplink is as fast as one machine's."""
    return Cluster.fat_tree(count, 2, 1, LINK_GBPS, oversubscription=2.0)


class Given:
    """A host with fixed candidates."""

    order = "fifo"

    def __init__(self, *candidates: Sequence[tuple[Job, tuple[int, ...]]]) -> None:
        self._given = candidates
        self.asked = 0

    def key(self, waiting: Waiting) -> float:
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        return self.candidates(view, 1)[0]

    def place(self, job: Job, view: Snapshot) -> Placement | None:  # noqa: ARG002
        return None

    def why_wait(self, job: Job, view: Snapshot) -> str:
        return f"{job.id} waits at {view.now_s}"

    def candidates(self, view: Snapshot, count: int) -> list[Plan]:
        self.asked = count
        if not view.waiting:
            return [Plan(view.version)]
        return [
            Plan(view.version, tuple(Start(job, Placement(machines)) for job, machines in each))
            for each in self._given
        ]


def shifts(plan: Plan) -> dict[str, float]:
    return {action.job_id: action.shift_s for action in plan.actions if isinstance(action, Shift)}


def chosen(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {action.job.id: action.placement.machines for action in plan.actions if isinstance(action, Start)}


def decided(cassini: Cassini, state: ClusterState, *jobs: Job) -> Plan:
    plan = cassini.plan(state.snapshot(0.0, [Waiting(job) for job in jobs]))
    state.commit(plan)
    return plan


def test_two_equal_jobs_on_a_link_are_shifted_by_half_an_iteration() -> None:
    a, b = half_up("a", 2), half_up("b", 2)
    plan = decided(Cassini(Given([(a, (0, 2)), (b, (1, 4))])), ClusterState(racks(3)), a, b)
    sent = shifts(plan)
    assert sent.keys() == {"a", "b"}
    assert abs(sent["a"] - sent["b"]) == pytest.approx(0.1, abs=0.005)
    start = plan.actions[0]
    assert isinstance(start, Start)
    assert start.placement.facts["score"] == pytest.approx(1.0)
    assert start.placement.facts["links"] == [{"link": "rack0", "jobs": ["a", "b"], "score": pytest.approx(1.0)}]
    assert "shares the uplink of rack0 with b: score 1.00" in start.placement.explain()


def test_jobs_that_share_no_link_are_not_shifted() -> None:
    a, b = half_up("a", 2), half_up("b", 2)
    plan = decided(Cassini(Given([(a, (0, 1)), (b, (2, 3))])), ClusterState(racks(2)), a, b)
    assert shifts(plan) == {}
    start = plan.actions[0]
    assert isinstance(start, Start)
    assert start.placement.explain().splitlines()[-1] == "candidate 1 of 1: shares no link"
    assert "score" not in start.placement.explain()
    assert start.placement.facts["shift_ms"] is None


def test_takes_the_candidate_whose_jobs_get_on_best() -> None:
    # Two jobs of 200 ms fit together; one of 200 and one of 260 do not.
    state = ClusterState(racks(6))
    state.place(half_up("even", 2), Placement((0, 2)))
    state.place(half_up("odd", 2, 0.26), Placement((4, 6)))
    new = half_up("new", 2)
    plan = decided(Cassini(Given([(new, (5, 8))], [(new, (1, 8))])), state, new)
    assert chosen(plan) == {"new": (1, 8)}
    assert shifts(plan).keys() == {"even", "new"}


def test_a_candidate_with_more_contended_links_wins_by_its_mean_score_but_not_by_time() -> None:
    # On rack 0 the new job meets one that it does not go with. The second candidate meets another as well, on a
    # link that scores better, and raises the mean.
    new = half_up("new", 2)
    found = {}
    for rank in ("score", "time"):
        state = ClusterState(racks(6))
        state.place(half_up("odd", 2, 0.26), Placement((0, 2)))
        state.place(light("light", 0.27, 0.1), Placement((4, 6)))
        plan = decided(Cassini(Given([(new, (1, 8))], [(new, (1, 5))]), rank=rank), state, new)
        found[rank] = chosen(plan)["new"]
    assert found == {"score": (1, 5), "time": (1, 8)}


@st.composite
def two_candidates(draw: st.DrawFn) -> tuple[list[Job], list[tuple[int, int]], list[list[tuple[int, int]]]]:
    """Draw jobs that run, and two ways to place others, on six racks of two machines."""
    drawn = st.builds(
        light, st.just("x"), st.sampled_from([0.2, 0.21, 0.26, 0.4]), st.sampled_from([0.1, 0.4, 0.6])
    )
    jobs = [
        replace(job, id=f"job{number}") for number, job in enumerate(draw(st.lists(drawn, min_size=2, max_size=5)))
    ]
    old = draw(st.integers(0, len(jobs) - 1))
    order = draw(st.permutations(range(12)))
    at = [(order[2 * number], order[2 * number + 1]) for number in range(old)]
    left = order[2 * old :]
    others = [draw(st.permutations(left)) for _ in range(2)]
    new = [[(each[2 * number], each[2 * number + 1]) for number in range(len(jobs) - old)] for each in others]
    return jobs, at, new


@settings(max_examples=examples(40))
@given(two_candidates())
def test_jobs_are_never_slower_than_with_the_hosts_own_plan(
    case: tuple[list[Job], list[tuple[int, int]], list[list[tuple[int, int]]]],
) -> None:
    jobs, running, new = case
    waiting = jobs[len(running) :]
    candidates = [list(zip(waiting, each, strict=True)) for each in new]
    times_s = {}
    for name, policy_of in (("host", Given), ("cassini", lambda *each: Cassini(Given(*each)))):
        state, network = ClusterState(racks(6)), Phases(racks(6))
        for job, machines in zip(jobs, running, strict=False):
            state.place(job, Placement(machines))
            network.start(state.find(job.id))
        plan = policy_of(*candidates).plan(state.snapshot(0.0, [Waiting(job) for job in waiting]))
        state.commit(plan)
        for job in waiting:
            network.start(state.find(job.id))
        network.shift([state.find(job_id) for job_id in shifts(plan)])
        times_s[name] = {job_id: outcome.mean_s for job_id, outcome in network.outcomes.items()}
    over = [times_s["cassini"][job.id] / times_s["host"][job.id] for job in jobs]
    assert sum(over) <= len(jobs) + 1e-6


def test_of_equal_candidates_the_hosts_first_is_taken() -> None:
    a = half_up("a", 2)
    plan = decided(Cassini(Given([(a, (4, 6))], [(a, (0, 2))])), ClusterState(racks(4)), a)
    assert chosen(plan) == {"a": (4, 6)}


def test_a_chain_of_jobs_gets_shifts_that_suit_all_links() -> None:
    # Fig. 7: j1 and j2 share a link, and so do j2 and j3.
    jobs = [half_up("j1", 2), half_up("j2", 2), half_up("j3", 2)]
    seats = [(0, 2), (3, 4), (5, 6)]
    cluster = racks(4)
    plan = decided(Cassini(Given(list(zip(jobs, seats, strict=True)))), ClusterState(cluster), *jobs)
    sent = shifts(plan)
    assert len(sent) == 3
    for (one, there), (other, here) in pairwise(zip(jobs, seats, strict=True)):
        link = cluster.parent[there[1]]
        both = [circles(cluster, one, there)[link], circles(cluster, other, here)[link]]
        unified = unify(tuple(circle.iteration_s for circle in both))
        score = curve(both, [sent[one.id], sent[other.id]], unified).score(LINK_GBPS)
        assert score == pytest.approx(1.0, abs=0.03)  # 5 degrees


def test_a_candidate_with_a_loop_is_dropped_or_settled() -> None:
    jobs = [half_up("a", 2), half_up("b", 2), half_up("c", 2)]
    loop = list(zip(jobs, [(0, 2), (3, 4), (5, 1)], strict=True))
    tree = list(zip(jobs, [(0, 2), (3, 4), (5, 6)], strict=True))
    dropped = Cassini(Given(loop, tree), loops="drop")
    assert chosen(decided(dropped, ClusterState(racks(4)), *jobs))["c"] == (5, 6)
    only = decided(Cassini(Given(loop), loops="drop"), ClusterState(racks(4)), *jobs)
    assert shifts(only) == {}
    settled = decided(Cassini(Given(loop)), ClusterState(racks(4)), *jobs)
    assert len(shifts(settled)) == 3


def test_shifts_are_sent_once_and_anew_when_placements_change() -> None:
    a, b, c = half_up("a", 2), half_up("b", 2), half_up("c", 2)
    state = ClusterState(racks(4))
    cassini = Cassini(Given([(a, (0, 2)), (b, (1, 4)), (c, (3, 6))]))
    decided(cassini, state, a, b, c)
    assert cassini.plan(state.snapshot()).actions == ()
    state.release("a")
    assert cassini.plan(state.snapshot()).actions == ()  # no two jobs share a link any more
    state.place(a, Placement((0, 2)), 5.0)
    plan = cassini.plan(state.snapshot(5.0))
    assert "a" in shifts(plan)
    state.commit(plan, 5.0)
    by_s = {job_id: running.shift_s for job_id, running in state.running.items()}
    for other in "bc":
        assert abs(by_s["a"] - by_s[other]) == pytest.approx(0.1, abs=0.005)
    assert cassini.plan(state.snapshot(5.0)).actions == ()


def test_asks_for_as_many_candidates_as_it_is_told() -> None:
    host = Given([])
    assert isinstance(host, Host)
    Cassini(host).plan(ClusterState(racks(2)).snapshot())
    assert host.asked == 10
    Cassini(host, candidates=3).plan(ClusterState(racks(2)).snapshot())
    assert host.asked == 3


def test_options_go_to_cassini_and_to_its_host() -> None:
    made = policy("themis+cassini", candidates=5, precision_deg=10.0, loops="drop", lease_s=60.0)
    assert isinstance(made, Cassini)
    assert (made.count, made.search.precision_deg, made.loops) == (5, 10.0, "drop")
    assert made.host.lease_s == 60.0  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="rank"):
        policy("themis+cassini", rank="luck")
    with pytest.raises(InputError, match="loops"):
        policy("themis+cassini", loops="keep")
    with pytest.raises(InputError, match="candidates"):
        policy("titan+cassini", candidates=0)


def test_the_queue_of_a_host_may_have_another_order() -> None:
    long, short = half_up("long", 4, duration_s=900.0), half_up("short", 4, duration_s=60.0, submit_s=1.0)
    first = half_up("first", 4, duration_s=100.0)
    result = cranny.simulate(racks(2), [first, long, short], policy="titan+cassini", order="sjf")
    start = dict(zip(result.jobs["job_id"], result.jobs["start_s"], strict=True))
    assert start["short"] < start["long"]


def six(duration_s: float = 300.0) -> list[Job]:
    """Two jobs of three workers: in racks of two machines they must share an uplink."""
    return [half_up(name, 3, duration_s=duration_s / 2) for name in "ab"]


def test_themis_with_cassini_beats_themis_where_jobs_must_share_a_link() -> None:
    means = {}
    for name in ("themis", "themis+cassini", "pollux", "pollux+cassini", "ideal"):
        jobs = cranny.simulate(racks(3), six(), policy=name, network="phases").jobs
        means[name] = sum(jobs["finish_s"].to_list()) - sum(jobs["start_s"].to_list())
    # Jobs that start together send together, and take half as long again.
    assert means["themis"] >= 1.3 * means["themis+cassini"]
    assert means["pollux"] >= 1.3 * means["pollux+cassini"]
    assert means["themis+cassini"] == pytest.approx(means["ideal"], rel=0.02)


@pytest.mark.parametrize("name", [name for name in TABLE if name.endswith("+cassini")])
def test_every_host_keeps_jobs_apart_that_could_meet(name: str) -> None:
    # A job of three sits in racks 0 and 1; one that does not fit it finds other machines.
    state = ClusterState(racks(4))
    state.place(half_up("old", 3), Placement((0, 1, 2)))
    placement = policy(name).place(half_up("new", 2, 0.26), state.snapshot())
    assert placement is not None
    assert "shares no link" in placement.explain()


def test_many_jobs_that_share_links_are_ranked_by_score(monkeypatch: pytest.MonkeyPatch) -> None:
    new = half_up("new", 2)
    monkeypatch.setattr(cassini_policy, "MOST_SIMULATED", 1)
    state = ClusterState(racks(6))
    state.place(half_up("odd", 2, 0.26), Placement((0, 2)))
    state.place(light("light", 0.27, 0.1), Placement((4, 6)))
    plan = decided(Cassini(Given([(new, (1, 8))], [(new, (1, 5))])), state, new)
    assert chosen(plan)["new"] == (1, 5)
