"""What a source says of a cluster."""

from cranny.backends.cluster_reading import ClusterReading, ClusterSource, Reservation
from cranny.model.cluster import Cluster


def test_a_reservation_without_users_is_maintenance() -> None:
    assert Reservation("service", frozenset({"a"}), 0.0, 1.0).maintenance
    assert not Reservation("course", frozenset({"a"}), 0.0, 1.0, users=frozenset({"ann"})).maintenance
    assert not Reservation("course", frozenset({"a"}), 0.0, 1.0, accounts=frozenset({"physics"})).maintenance


def test_a_class_with_read_is_a_source() -> None:
    class Fixed:
        def read(self) -> ClusterReading:
            return ClusterReading(Cluster.single_rack(1, 2), 0.0)

    source: ClusterSource = Fixed()
    assert isinstance(source, ClusterSource)
    assert source.read().foreign == ()
