"""The protocols of policies and networks: which of ours can do what."""

import pytest

from cranny.core.protocol import (
    Network,
    Ordered,
    Periodic,
    Placer,
    PlacerPolicy,
    Policy,
    RecordingNetwork,
    Reorderable,
    default_order,
    default_period_s,
    least_period_s,
)
from cranny.core.queue import QueuePolicy
from cranny.model.cluster import Cluster
from cranny.network.networks import NETWORKS
from cranny.policies import TABLE, policy

RACK = Cluster.single_rack(2, 4)


@pytest.mark.parametrize("name", TABLE)
def test_every_policy_is_a_placer_or_a_policy(name: str) -> None:
    assert isinstance(policy(name), Placer | Policy)


def test_a_placer_in_an_order_is_a_policy_with_a_placer() -> None:
    queued = QueuePolicy(policy("titan"), "sjf")
    assert isinstance(queued, PlacerPolicy)
    assert isinstance(queued, Ordered)
    assert default_order(queued) == "sjf"
    assert not isinstance(policy("themis"), PlacerPolicy)


def test_a_policy_without_an_order_is_first_come_first_served() -> None:
    assert not isinstance(policy("titan"), Ordered)
    assert default_order(policy("titan")) == "fifo"
    assert default_order(policy("netpack")) == "knapsack"


def test_cassini_takes_the_order_of_its_host() -> None:
    assert default_order(policy("netpack+cassini")) == "knapsack"
    assert [name for name in TABLE if isinstance(policy(name), Reorderable)] == [
        name for name, entry in TABLE.items() if entry.host
    ]


def test_gavel_decides_in_rounds() -> None:
    assert [name for name in TABLE if isinstance(policy(name), Periodic)] == ["gavel"]
    assert (default_period_s(policy("gavel")), least_period_s(policy("gavel"))) == (360.0, 10.0)
    assert (default_period_s(policy("titan")), least_period_s(policy("titan"))) == (0.0, 0.0)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_jobs_share_record_what_happens(name: str) -> None:
    network: Network = NETWORKS[name].on(RACK)
    assert isinstance(network, RecordingNetwork) == (name in {"steady", "phases"})
    if isinstance(network, RecordingNetwork):
        network.note(0.0)
        recorded = {"steady": {"streams"}, "phases": {"iterations", "intervals", "contentions"}}[name]
        assert set(network.recorded()) == recorded
