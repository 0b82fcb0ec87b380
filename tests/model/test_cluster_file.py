import json
import math
import os
from pathlib import Path

import pytest

from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.topology_spec import MAX_MACHINES
from cranny.model.yaml_file import MAX_BYTES

LAB = """\
name: lab
link_gbps: 100
racks:
  - name: r0
    uplink_gbps: 400
    pat_gbps: 1000
    machines:
      - {name: a, gpus: 8, gpu_type: h200, count: 4}
      - {gpus: 2, gpu_type: t4, uplink_gbps: 25}
"""

HALL = {
    "name": "hall",
    "link_gbps": 200,
    "oversubscription": 4,
    "machines": [{"name": "head", "gpus": 1}],
    "switches": [
        {
            "name": "pod0",
            "racks": [
                {"name": "r0", "pat_gbps": 1600, "machines": [{"gpus": 8, "count": 16}]},
                {"name": "r1", "machines": [{"gpus": 8, "count": 16}]},
            ],
        },
        {
            "name": "pod1",
            "oversubscription": 1,
            "racks": [{"name": "r2", "machines": [{"gpus": 4, "count": 32, "uplink_gbps": 50}]}],
        },
    ],
}


def read(folder: Path, content: str | bytes, name: str = "lab.yaml") -> Cluster:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Cluster.from_file(path)


def problem(folder: Path, content: str | bytes) -> str:
    with pytest.raises(InputError) as raised:
        read(folder, content)
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith(str(folder / "lab.yaml"))
    return text.removeprefix(f"{folder}{os.sep}")


def by_name(cluster: Cluster) -> dict[str, float]:
    return dict(zip(cluster.node_names, cluster.uplink_gbps, strict=True))


def test_reads_a_rack_of_different_machines(tmp_path: Path) -> None:
    cluster = read(tmp_path, LAB)
    assert cluster.name == "lab"
    assert [machine.name for machine in cluster.machines] == ["a-0", "a-1", "a-2", "a-3", "r0-machine4"]
    assert [machine.gpus for machine in cluster.machines] == [8, 8, 8, 8, 2]
    assert [machine.gpu_type for machine in cluster.machines] == ["h200"] * 4 + ["t4"]
    assert cluster.uplink_gbps == (100.0, 100.0, 100.0, 100.0, 25.0, 400.0, math.inf)
    assert cluster.pat_gbps == (None,) * 5 + (1000.0, None)


def test_reads_a_deeper_tree_from_json(tmp_path: Path) -> None:
    gbps = by_name(read(tmp_path, json.dumps(HALL), "hall.json"))
    assert gbps["head"] == 200
    assert gbps["r0"] == 16 * 200 / 4
    assert gbps["pod0"] == 2 * 800 / 4
    assert gbps["r2"] == 32 * 50 / 4
    assert gbps["pod1"] == 400  # its own oversubscription wins
    assert gbps["hall"] == math.inf


def test_yaml_and_json_of_the_same_give_the_same(tmp_path: Path) -> None:
    spread = read(tmp_path, json.dumps(HALL, indent="\t"), "a.yaml")
    flat = read(tmp_path, json.dumps(HALL), "b.json")
    assert spread.machines == flat.machines
    assert by_name(spread) == by_name(flat)


@pytest.mark.parametrize("example", [0, 1])
def test_the_examples_of_the_documentation_can_be_read(tmp_path: Path, example: int) -> None:
    text = (Path(__file__).parents[2] / "docs" / "use" / "cluster-format.md").read_text(encoding="utf-8")
    blocks = [block.split("\n", 1)[1] for block in text.split("```")[1::2]]
    cluster = read(tmp_path, blocks[example])
    assert len(cluster.machines) == (5, 65)[example]


def test_a_single_rack_needs_only_machines(tmp_path: Path) -> None:
    cluster = read(tmp_path, "machines: [{gpus: 8, count: 3}]", "small.yaml")
    assert cluster.node_names == ("machine0", "machine1", "machine2", "small")
    assert cluster.uplink_gbps[0] == 100


def test_switches_without_names_are_numbered(tmp_path: Path) -> None:
    cluster = read(tmp_path, "switches: [{racks: [{machines: [{gpus: 1}]}, {machines: [{gpus: 1}]}]}]")
    assert cluster.node_names == (
        "switch0-rack0-machine0",
        "switch0-rack1-machine0",
        "switch0-rack0",
        "switch0-rack1",
        "switch0",
        "lab",
    )


def test_names_that_look_like_numbers_are_names(tmp_path: Path) -> None:
    cluster = read(
        tmp_path, "machines: [{gpus: 1, name: 0012}, {gpus: 1, name: 2024-01-01}, {gpus: 1, name: 12e4}]"
    )
    assert cluster.node_names[:3] == ("0012", "2024-01-01", "12e4")


def test_numbers_may_be_written_as_json_does(tmp_path: Path) -> None:
    cluster = read(tmp_path, '{"link_gbps": 1e2, "machines": [{"gpus": 1, "uplink_gbps": 2.5E+1}, {"gpus": 2}]}')
    assert cluster.uplink_gbps[:2] == (25.0, 100.0)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + LAB).name == "lab"


def test_names_a_wrong_value_with_file_line_and_field(tmp_path: Path) -> None:
    text = LAB.replace("gpus: 2", "gpus: -8")
    assert problem(tmp_path, text) == (
        "lab.yaml:9: racks[0].machines[1].gpus: must be a whole number from 1 to 64, not -8"
    )


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ("gpus: 65", "gpus: must be a whole number from 1 to 64, not 65"),
        ("gpus: 8.5", "gpus: must be a whole number from 1 to 64, not 8.5"),
        ("gpus: '8'", "gpus: must be a whole number from 1 to 64, not '8'"),
        ("gpus: true", "gpus: must be a whole number from 1 to 64, not True"),
        ("gpus: .nan", "gpus: must be a whole number from 1 to 64, not nan"),
        ("gpus:", "gpus: must be a whole number from 1 to 64, not nothing"),
        ("gpus: [8]", "gpus: must be a whole number from 1 to 64, not a list"),
        ("gpus: {x: 8}", "gpus: must be a whole number from 1 to 64, not a mapping of fields"),
        ("name: x", "gpus: is missing"),
        ("gpus: 8\n    count: 0", "count: must be a whole number from 1 to 1000000, not 0"),
        ("gpus: 8\n    uplink_gbps: .nan", "uplink_gbps: must be a positive number, not nan"),
        ("gpus: 8\n    uplink_gbps: .inf", "uplink_gbps: must be a positive number, not inf"),
        ("gpus: 8\n    uplink_gbps: 0", "uplink_gbps: must be a positive number, not 0"),
        ("gpus: 8\n    uplink_gbps: fast", "uplink_gbps: must be a positive number, not 'fast'"),
        ("gpus: 8\n    uplink_gbps: no", "uplink_gbps: must be a positive number, not False"),
        ("gpus: 8\n    name: ''", "name: must be printable text of 1 to 100 characters, not ''"),
        ('gpus: 8\n    name: "a\\nb"', r"name: must be printable text of 1 to 100 characters, not 'a\nb'"),
        ("gpus: 8\n    gpu_type: [a]", "gpu_type: must be printable text of 1 to 100 characters, not a list"),
        (
            "gpus: !!python/name:os.system x",
            "gpus: tag 'tag:yaml.org,2002:python/name:os.system' is not allowed",
        ),
    ],
)
def test_says_what_a_value_must_be(tmp_path: Path, machine: str, said: str) -> None:
    line = 2 + machine.count("\n")
    assert problem(tmp_path, f"machines:\n  - {machine}\n").startswith(f"lab.yaml:{line}: machines[0].{said}")


def test_cuts_long_values_short(tmp_path: Path) -> None:
    for value in (f"'{'x' * 500}'", "1" + "0" * 400, "9" * 5000):
        assert len(problem(tmp_path, f"machines: [{{gpus: {value}}}]")) < 160


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rack: []", "1: unknown field 'rack'; did you mean 'racks'?"),
        (
            "racks:\n- nam: r\n  machines: [{gpus: 1}]",
            "2: racks[0]: unknown field 'nam'; did you mean 'name'?",
        ),
        (
            "racks:\n- machines:\n  - name: a\n    gpu: 8",
            "4: racks[0].machines[0]: unknown field 'gpu'; did you",
        ),
        (
            "machines: [{gpus: 8, zzz: 1}]",
            "1: machines[0]: unknown field 'zzz'; known: count, features, gpu_type, gpus",
        ),
        ("5: 6", "1: unknown field '5'; known: link_gbps"),
    ],
)
def test_an_unknown_field_suggests_the_nearest(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, text).startswith(f"lab.yaml:{said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("racks: 5", "1: racks: must be a list with an entry for each rack, not 5"),
        ("racks:\n - 5", "2: racks[0]: must be a mapping of fields, not 5"),
        ("name: x\nswitches: {}", "2: switches: must be a list with an entry for each switch, not a mapping"),
        ("machines:", "1: machines: must be a list with an entry for each machine, not nothing"),
        ("[]", "1: must be a mapping of fields, not an empty list"),
        ("hello", "1: must be a mapping of fields, not 'hello'"),
        ("name: x", "1: has no machines: give `machines`, `racks` or `switches`"),
        ("name: x\nracks:\n- name: r", "3: racks[0]: has no machines"),
        ("racks: [{machines: []}]", "1: racks[0]: has no machines"),
        (
            "racks: [{machines: [{gpus: 1}]}]\nswitches: [{machines: [{gpus: 1}]}]",
            "1: has both `racks` and `switches`, which mean the same: use one",
        ),
    ],
)
def test_says_what_is_missing_or_misplaced(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, text).startswith(f"lab.yaml:{said}")


def test_refuses_two_machines_or_switches_of_one_name(tmp_path: Path) -> None:
    machines = "machines:\n- {gpus: 1, name: a, count: 2}\n- {gpus: 1, name: a-1}\n"
    assert problem(tmp_path, machines) == (
        "lab.yaml:3: machines[1]: two machines are called 'a-1'; the other is on line 2"
    )
    racks = "racks:\n- {name: r, machines: [{gpus: 1}]}\n- {name: r, machines: [{gpus: 1}]}"
    assert problem(tmp_path, racks) == (
        "lab.yaml:3: racks[1]: two switches are called 'r'; the other is on line 2"
    )


def test_refuses_a_field_given_twice(tmp_path: Path) -> None:
    assert problem(tmp_path, "name: a\nname: b") == "lab.yaml:2: field 'name' is given twice, first on line 1"
    text = "machines:\n- gpus: 1\n  name: x\n  gpus: 2"
    assert problem(tmp_path, text) == "lab.yaml:4: machines[0]: field 'gpus' is given twice, first on line 2"


def test_refuses_fields_that_have_no_plain_name(tmp_path: Path) -> None:
    assert problem(tmp_path, "? [a]\n: 1") == "lab.yaml:1: the name of a field must be plain text"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: x\nmachines: [", 3),
        ("name: a: b", 1),
        ("name: 'x", 1),
        ("a: 1\n---\nb: 2", 2),
        ("\tname: x", 1),
    ],
)
def test_names_the_line_of_broken_yaml(tmp_path: Path, text: str, line: int) -> None:
    assert problem(tmp_path, text).startswith(f"lab.yaml:{line}: cannot be read as YAML or JSON: ")


@pytest.mark.parametrize("text", ["", "   \n", "# nothing but words\n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    assert problem(tmp_path, text) == "lab.yaml: is empty"


@pytest.mark.parametrize("content", [bytes(range(256)), b"\x7fELF\x00\x00\x01", b"\x89PNG\r\n\x1a\n\x00"])
def test_refuses_binary_rubbish(tmp_path: Path, content: bytes) -> None:
    assert problem(tmp_path, content).startswith("lab.yaml: is not a text file")


def test_refuses_files_that_are_not_there_or_not_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.yaml: there is no such file"):
        Cluster.from_file(tmp_path / "nowhere.yaml")
    with pytest.raises(InputError, match="is a folder, not a file"):
        Cluster.from_file(str(tmp_path))
    with pytest.raises(InputError, match="cannot be read: embedded null"):
        Cluster.from_file("a\0b")


def test_refuses_a_file_it_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)  # root may read everything, so file modes prove nothing
    with pytest.raises(InputError, match=r"lab.yaml: cannot be read: Permission denied"):
        Cluster.from_file(tmp_path / "lab.yaml")


def test_refuses_an_alias_bomb_before_it_goes_off(tmp_path: Path) -> None:
    layers = [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)]
    bomb = "\n".join(["x0: &x0 [lol]", *layers])
    assert problem(tmp_path, bomb) == "lab.yaml:2: alias *x0 is not supported; write it out"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"switches": [' * 1000, "- " * 5000])
def test_refuses_what_is_nested_too_deep(tmp_path: Path, text: str) -> None:
    assert problem(tmp_path, text) == "lab.yaml:1: is nested more than 100 levels deep"


def test_refuses_too_many_levels_of_switches(tmp_path: Path) -> None:
    def tree(levels: int) -> str:
        return '{"switches": [' * (levels - 1) + '{"machines": [{"gpus": 1}]}' + "]}" * (levels - 1)

    assert len(read(tmp_path, tree(32)).paths[0]) == 32
    assert problem(tmp_path, tree(33)).endswith("is more than 32 levels of switches deep")


def test_refuses_a_file_that_is_too_large(tmp_path: Path) -> None:
    assert problem(tmp_path, b"#" * (MAX_BYTES + 1)) == "lab.yaml: is larger than 16 MiB"


def test_refuses_more_machines_than_it_can_number(tmp_path: Path) -> None:
    text = f"machines: [{{gpus: 1, count: {MAX_MACHINES}}}]\nracks: [{{machines: [{{gpus: 1}}]}}]"
    assert problem(tmp_path, text) == "lab.yaml:1: has more than 1000000 machines"


def test_what_a_switch_aggregates_is_its_memory_over_the_round_trip_time(tmp_path: Path) -> None:
    # A kilobyte in a microsecond are 8 Gbps.
    def read(text: str) -> Cluster:
        path = tmp_path / "c.yaml"
        path.write_text(text, encoding="utf-8")
        return Cluster.from_file(path)

    rack = "  - {machines: [{gpus: 1}], memory_kb: 6250%s}\n"
    cluster = read(f"rtt_us: 50\nracks:\n{rack % ''}")
    assert cluster.pat_gbps[cluster.rack_nodes[0]] == 1000.0
    with pytest.raises(InputError, match=r"has both `pat_gbps` and `memory_kb`: give one"):
        read(f"rtt_us: 50\nracks:\n{rack % ', pat_gbps: 3'}")
    with pytest.raises(InputError, match=r"has `memory_kb`, which needs the `rtt_us` of the file"):
        read(f"racks:\n{rack % ''}")


HALVES = """\
racks:
  - machines: [{names: "node[001-003]", gpus: 8}]
  - machines: [{name: 0012, gpus: 4}, {name: "odd[1]", gpus: 4}]
"""


def test_machines_may_be_named_by_a_host_list(tmp_path: Path) -> None:
    cluster = read(tmp_path, HALVES)
    assert [machine.name for machine in cluster.machines] == ["node001", "node002", "node003", "0012", "odd[1]"]
    assert [machine.gpus for machine in cluster.machines] == [8, 8, 8, 4, 4]
    assert cluster.partitions == {}


def test_partitions_name_their_machines(tmp_path: Path) -> None:
    text = "partitions:\n  big: node[003,001]\n  all:\n  - 0012\n  - node[001-002],0012\n  - odd[1]\n  7: []\n"
    cluster = read(tmp_path, HALVES + text)
    assert cluster.partitions == {"big": (0, 2), "all": (0, 1, 3, 4), "7": ()}
    assert cluster.describe().endswith("partitions big (2 machines), all (4 machines), 7 (0 machines)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("partitions: [a]", "4: partitions: must be names, each with its machines, not a list"),
        ("partitions:\n  p:", "5: partitions.p: must be machines such as node[001-004], not nothing"),
        (
            "partitions:\n  p: {a: b}",
            "5: partitions.p: must be machines such as node[001-004], not a mapping of fields",
        ),
        (
            "partitions:\n  p:\n  - [a]",
            "6: partitions.p[0]: must be a machine or machines such as node[001-004], not a list",
        ),
        ("partitions:\n  p: node[1-", "5: partitions.p: host list 'node[1-': cannot be read from '[1-' on"),
        ("partitions:\n  p: nod001", "5: partitions.p: unknown machine 'nod001'; did you mean 'node001'?"),
        (
            "partitions:\n  '': node001",
            "5: partitions.: the name of a partition must be printable text of 1 to 100",
        ),
    ],
)
def test_says_what_is_wrong_with_a_partition(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, HALVES + text).startswith(f"lab.yaml:{said}")


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (
            "{names: 'a[1-2]', name: b, gpus: 1}",
            "machines[0]: has `names`, which neither `name` nor `count` can stand",
        ),
        (
            "{names: 'a[1-2]', count: 1, gpus: 1}",
            "machines[0]: has `names`, which neither `name` nor `count` can stand",
        ),
        (
            "{names: 'a[2-1]', gpus: 1}",
            "machines[0].names: host list 'a[2-1]': the range 2-1 ends before it begins",
        ),
        ("{names: '', gpus: 1}", "machines[0].names: must be a list of names such as node[001-004], not ''"),
        ("{names: [a], gpus: 1}", "machines[0].names: must be a list of names such as node[001-004], not a list"),
        ("{names: 'a,a', gpus: 1}", "machines[0].names: names a machine twice"),
    ],
)
def test_says_what_is_wrong_with_a_host_list(tmp_path: Path, machine: str, said: str) -> None:
    assert problem(tmp_path, f"machines: [{machine}]").startswith(f"lab.yaml:1: {said}")


def test_refuses_more_names_than_it_can_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.model.cluster_file.MAX_MACHINES", 9)
    text = "machines: [{names: 'a[1-8]', gpus: 1}, {names: 'b[1-2]', gpus: 1}]"
    assert problem(tmp_path, text) == "lab.yaml:1: has more than 9 machines"
