import pytest

from cranny.network.networks import NETWORKS
from cranny.sim.conformance import ConformanceCheck, conformance


@pytest.mark.parametrize("network", NETWORKS)
def test_every_closed_form_holds(network: str) -> None:
    checks = conformance(network)
    assert [check for check in checks if not check.ok] == []
    assert len({check.about for check in checks}) == len(checks)


def test_shared_links_are_checked_where_they_are_shared() -> None:
    assert len(conformance("steady")) > len(conformance("isolated"))


def test_a_check_fails_when_the_values_differ() -> None:
    assert not ConformanceCheck("half", 0.5, 0.500001).ok
