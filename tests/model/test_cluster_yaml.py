import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.cluster_values import cluster_digest, cluster_of_values, cluster_values
from cranny.model.cluster_yaml import LINKS, cluster_yaml
from cranny.model.yaml_file import MAX_NAME

TEXT = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=10).filter(
    str.isprintable
)
RATES = st.one_of(st.just(100.0), st.floats(min_value=1e-3, max_value=1e6))


def same(one: Cluster, other: Cluster) -> None:
    for each in dataclasses.fields(Cluster):
        assert one.__dict__[each.name] == other.__dict__[each.name], each.name


def reread(folder: Path, text: str) -> Cluster:
    path = folder / "written.yaml"
    path.write_text(text, encoding="utf-8")
    return Cluster.from_file(path)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    numbered = [f"n{number:03d}" for number in range(12)]
    names = iter(draw(st.lists(TEXT, min_size=4, max_size=4, unique=True).map(lambda own: [*own, *numbered])))
    switches = iter(draw(st.lists(TEXT, min_size=8, max_size=8, unique=True)))

    def switch(level: int) -> Switch:
        machines: list[Machine | Switch] = [
            Machine(
                next(names),
                draw(st.integers(1, 3)),
                draw(st.sampled_from(["", "a100", "V100 32", "null"])),
                draw(st.sampled_from([{}, {"cpus": 8}, {"memory_mb": 64_000, "ssd, fast": 0}])),
                draw(st.sampled_from([frozenset(), frozenset({"nvlink"}), frozenset({"true", "12", "a b"})])),
            )
            for _ in range(draw(st.integers(1 if level == 2 else 0, 3)))
        ]
        below: list[Machine | Switch] = [
            switch(level + 1) for _ in range(draw(st.integers(0 if machines else 1, 2)) if level < 2 else 0)
        ]
        children = (*machines, *below)
        pat = draw(st.none() | RATES)
        return Switch(next(switches), children, tuple(draw(RATES) for _ in children), pat)

    root = switch(1)
    plain = Cluster.of(root)
    own = [machine.name for machine in plain.machines]
    partitions = draw(st.dictionaries(TEXT, st.lists(st.sampled_from(own), unique=True), max_size=3))
    return Cluster.of(root, partitions)


@given(clusters())
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> None:
    same(reread(tmp_path_factory.getbasetemp(), cluster_yaml(cluster)), cluster)
    same(cluster_of_values(json.loads(json.dumps(cluster_values(cluster)))), cluster)


def test_equal_machines_are_one_line() -> None:
    machines = tuple(Machine(f"node{number:03d}", 8, "a100") for number in range(1, 5))
    racks = tuple(Switch(f"r{i}", machines[2 * i : 2 * i + 2], (200.0, 200.0)) for i in range(2))
    head = Machine("head", 1)
    cluster = Cluster.of(
        Switch("lab", (head, *racks), (25.0, 400.0, 133.3)), {"gpu": ["node002", "node001"], "debug": ["head"]}
    )
    text = cluster_yaml(cluster, ["Made by hand."], {LINKS: "assumed", "head": "DOWN", "r1": "assumed"})
    assert text == (
        "# Made by hand.\n"
        "name: lab\n"
        "link_gbps: 200                                                # assumed\n"
        "machines:\n"
        "  - {name: head, gpus: 1, uplink_gbps: 25}                    # DOWN\n"
        "racks:\n"
        "  - name: r0\n"
        "    uplink_gbps: 400\n"
        "    machines:\n"
        '      - {names: "node[001-002]", gpus: 8, gpu_type: a100}\n'
        "  - name: r1\n"
        "    uplink_gbps: 133.3                                        # assumed\n"
        "    machines:\n"
        '      - {names: "node[003-004]", gpus: 8, gpu_type: a100}\n'
        "partitions:\n"
        '  gpu: "node[001-002]"\n'
        "  debug: head\n"
    )


def test_a_remark_never_leaves_its_line(tmp_path: Path) -> None:
    cluster = Cluster.of(Switch("lab", (Machine("a", 1),), (1.0,)))
    text = cluster_yaml(cluster, remarks={"a": "reason:\nname: stolen\r\u2028x: y"})
    same(reread(tmp_path, text), cluster)


def test_names_that_are_too_long_are_refused_when_read(tmp_path: Path) -> None:
    cluster = Cluster.of(Switch("lab", (Machine("a" * (MAX_NAME + 1), 1),), (1.0,)))
    with pytest.raises(ValueError, match="printable text"):
        reread(tmp_path, cluster_yaml(cluster))


def test_digests_are_those_of_logs_before_resources() -> None:
    one = Cluster.fat_tree(2, 2, 4, gpu_type="a100")
    assert cluster_digest(one) == "7c7b34a0eb9974c58dded25221a71f323b805fff921ca5f3f6edfc93975442bb"
    assert (
        cluster_digest(Cluster.single_rack(1, 2))
        == "d8b27da2cd27219c31cf3aa0a6464c47543406954aa92f1a8ef4bab547be7df2"
    )
    more = Machine("a", 1, resources={"cpus": 4}, features=frozenset({"nvlink"}))
    assert cluster_digest(Cluster.of(Switch("s", (more,), (1.0,)))) == cluster_digest(
        Cluster.of(Switch("s", (Machine("a", 1),), (1.0,)))
    )
