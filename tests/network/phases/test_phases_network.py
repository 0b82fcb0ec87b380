"""Jobs that share links while they talk, in a network of a cluster and in a replay."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import cranny
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Plan, Shift, Start
from cranny.model.profile import ModelProfile
from cranny.network.networks import NETWORKS
from cranny.network.phases import link_groups
from cranny.network.phases.outcome import PhasedRun
from cranny.network.phases.phased_run import long_run
from cranny.network.phases.phases_network import Phases
from cranny.sim.replay import Replay
from cranny.traces.generate import generate_trace

RACK = Cluster.single_rack(machines=4, gpus_per_machine=4, link_gbps=100.0)
EVEN = ModelProfile("even", grad_bytes=1e9, iteration_ms=80.0)  # a ring of two talks for 80 ms, too
LONG = ModelProfile("long", grad_bytes=1e9, iteration_ms=160.0)


class Stage:
    """A network, and the state of the cluster it is in."""

    def __init__(self, cluster: Cluster = RACK) -> None:
        self.state, self.network = ClusterState(cluster), Phases(cluster)
        self.slowdown: dict[str, float] = {}

    def start(
        self, name: str, machines: tuple[int, ...], model: ModelProfile | str = EVEN, now_s: float = 0.0
    ) -> None:
        self.state.place(Job(name, len(machines), model, "ring"), Placement(machines), now_s)
        self.slowdown |= dict(self.network.start(self.state.find(name)))

    def end(self, name: str) -> None:
        self.state.release(name)
        del self.slowdown[name]
        self.slowdown |= dict(self.network.end(name))

    def shift(self, name: str, shift_s: float) -> None:
        self.state.commit(Plan(self.state.version, (Shift(name, shift_s),)))
        self.slowdown |= dict(self.network.shift([self.state.find(name)]))


def test_a_job_alone_runs_as_with_isolated_if_nothing_hides_behind_computing() -> None:
    stage = Stage()
    stage.start("a", (0, 1))
    stage.start("b", (2, 2))
    running = stage.state.find("a")
    assert stage.slowdown == pytest.approx(
        {"a": isolated(running.job, running.communication), "b": 1.0}, rel=1e-12
    )


def test_a_job_alone_runs_no_slower_than_with_isolated() -> None:
    for model in ("resnet50", "vgg16", "bert-large", "gpt2"):
        stage = Stage()
        stage.start("a", (0, 1, 2), model)
        running = stage.state.find("a")
        assert 1.0 < stage.slowdown["a"] <= isolated(running.job, running.communication) * 1.02


def test_jobs_on_other_links_notice_nothing() -> None:
    stage = Stage()
    stage.start("a", (0, 1))
    stage.start("b", (2, 3))
    assert stage.slowdown == pytest.approx({"a": 2.0, "b": 2.0})


def test_jobs_slow_each_other_until_one_ends() -> None:
    stage = Stage()
    stage.start("a", (0, 1))
    stage.start("b", (1, 2))
    assert stage.slowdown == pytest.approx({"a": 3.0, "b": 3.0})
    stage.end("b")
    assert stage.slowdown == pytest.approx({"a": 2.0})


def test_when_jobs_start_decides_how_much_of_their_communication_overlaps() -> None:
    # Half an iteration of 160 ms later the second finds the link free.
    stage = Stage()
    stage.start("a", (0, 1))
    stage.start("b", (0, 1), now_s=10 * 0.16 + 0.08)
    assert stage.slowdown == pytest.approx({"a": 2.0, "b": 2.0})


def test_a_shift_keeps_jobs_apart_and_a_wrong_one_does_not() -> None:
    stage = Stage()
    stage.start("a", (0, 1))
    stage.start("b", (0, 1))
    # Halfway between, agents do with a fifth more time what a right shift does with none.
    for shift_s, slowdown in ((0.08, 2.0), (0.04, 2.4), (0.0, 3.0)):
        stage.shift("a", 0.0)
        stage.shift("b", shift_s)
        assert stage.slowdown == pytest.approx({"a": slowdown, "b": slowdown})
    assert not list(stage.network.shift([stage.state.find("b")]))  # nothing new


def test_agents_keep_jobs_of_unlike_times_on_one_beat() -> None:
    # 160 and 164 ms, up for 80 ms each: on a beat of 164 ms they take turns; alone they drift into each other.
    near = ModelProfile("near", grad_bytes=1e9, iteration_ms=84.0)
    stage = Stage()
    stage.start("a", (0, 1))
    stage.start("b", (0, 1), near)
    alone = dict(stage.slowdown)
    stage.shift("a", 0.0)
    stage.shift("b", 0.08)
    assert stage.slowdown == pytest.approx({"a": 164 / 80, "b": 164 / 84})
    assert alone["a"] > 1.1 * stage.slowdown["a"]


def test_agents_let_go_of_jobs_that_cannot_keep_a_beat() -> None:
    # Three jobs up for half of the time cannot take turns; whatever their shifts, none is paced.
    stage = Stage()
    for name, shift_s in (("a", 0.0), ("b", 0.053), ("c", 0.107)):
        stage.start(name, (0, 1))
        stage.shift(name, shift_s)
    assert max(stage.slowdown.values()) <= 4.0
    assert min(stage.slowdown.values()) >= 3.0  # the link carries three times 80 ms of every 240 ms


def test_a_group_that_comes_again_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []

    def counted(*args: Any, **settings: Any) -> PhasedRun:
        played.append(args)
        return long_run(*args, **settings)

    monkeypatch.setattr(link_groups, "long_run", counted)
    stage = Stage()
    stage.start("a", (0, 1))
    for name in ("b", "c", "d"):
        stage.start(name, (1, 0), LONG)
        stage.end(name)
    stage.start("e", (2, 3), LONG)
    stage.start("f", (3, 2))
    assert len(played) == 1


def test_courses_tell_more_than_slowdowns() -> None:
    stage = Stage()
    stage.start("a", (0, 1))
    stage.start("b", (0, 1))
    assert stage.network.outcomes["a"].mean_s == pytest.approx(0.24)
    assert stage.network.outcomes["a"].above_gbit_per_iteration == pytest.approx(8.0)
    stage.end("b")
    assert set(stage.network.outcomes) == {"a"}
    assert stage.network.outcomes["a"].above_gbit == 0.0


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=12))
def test_what_comes_and_goes_leaves_no_trace(steps: list[tuple[int, int, int]]) -> None:
    roomy = Cluster.single_rack(machines=4, gpus_per_machine=16, link_gbps=100.0)
    stage = Stage(roomy)
    there: dict[str, tuple[tuple[int, int], float]] = {}
    for number, (a, b, at) in enumerate(steps):
        if len(there) > 3:
            gone = sorted(there)[at % len(there)]
            stage.end(gone)
            del there[gone]
        name = f"job-{number}"
        there[name] = (a, b), at * 0.03
        stage.start(name, (a, b), EVEN if at % 2 else LONG, at * 0.03)
    fresh = Stage(roomy)
    for name, (machines, start_s) in there.items():
        fresh.start(name, machines, EVEN if round(start_s / 0.03) % 2 else LONG, start_s)
    assert fresh.slowdown == pytest.approx(stage.slowdown, rel=0.02)


def test_jitter_is_drawn_from_the_generator() -> None:
    def slowdowns(seed: int) -> list[float]:
        state, network = ClusterState(RACK), Phases(RACK, jitter=0.02, rng=np.random.default_rng(seed))
        for name in ("a", "b"):
            state.place(Job(name, 2, EVEN, "ring"), Placement((0, 1)))
            found = dict(network.start(state.find(name)))
        return sorted(found.values())

    assert slowdowns(1) == slowdowns(1) != slowdowns(2)
    assert 2.0 < slowdowns(1)[0] < 3.05


@pytest.mark.parametrize("name", ["isolated", "instant", "steady"])
def test_shifts_mean_nothing_to_networks_without_phases(name: str) -> None:
    network, state = NETWORKS[name].on(RACK), ClusterState(RACK)
    state.place(Job("a", 2, EVEN, "ring"), Placement((0, 1)))
    network.start(state.find("a"))
    assert not list(network.shift([state.find("a")._replace(shift_s=0.1)]))


class Shifting:
    """Start two jobs at once, and shift the second when both run."""

    def __init__(self, shift_s: float) -> None:
        self.shift_s = shift_s
        self.done = False

    def key(self, waiting: Waiting) -> float:
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        actions: list[Action] = [Start(waiting.job, Placement((0, 1))) for waiting in view.waiting]
        if len(view.running) == 2 and not self.done:
            self.done = True
            actions = [Shift("a", 0.0), Shift("b", self.shift_s)]
        return Plan(view.version, tuple(actions))

    def why_wait(self, job: Job, view: Snapshot) -> str:  # noqa: ARG002 - not called here
        return "never"


@pytest.mark.parametrize(("shift_s", "finish_s"), [(0.0, 30.0), (0.08, 20.0)])
def test_a_replay_carries_out_shifts(shift_s: float, finish_s: float) -> None:
    replay = Replay(RACK, Shifting(shift_s), network=Phases(RACK))
    jobs = [Job(name, 2, EVEN, "ring", duration_s=10.0) for name in ("a", "b")]
    record = replay.run(jobs)
    assert record.jobs["finish_s"].to_list() == pytest.approx([finish_s, finish_s])


def test_a_trace_is_replayed_and_jobs_take_no_less_time_than_alone() -> None:
    cluster = Cluster.fat_tree(racks=2, machines_per_rack=4, gpus_per_machine=4, oversubscription=2)
    trace = generate_trace("philly", jobs=150, seed=0, load=0.9, gpus=cluster.gpus)
    result = cranny.simulate(cluster, trace, policy="random", network="phases")
    again = cranny.simulate(cluster, trace, policy="random", network="phases")
    assert result.jobs.equals(again.jobs)
    assert result.jobs["slowdown"].drop_nulls().min() >= 1.0 - 1e-9  # type: ignore[operator]
