from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cluster_import.samples import TOPOLOGY, kube_list, kube_node, node

from cranny.model.cluster import Cluster


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.txt").write_text(
        "".join(node(f"n{i}", "gpu:a100:8") for i in range(1, 5)), encoding="utf-8"
    )
    (tmp_path / "topology.txt").write_text(TOPOLOGY, encoding="utf-8")
    (tmp_path / "nodes.json").write_text(kube_list([kube_node("k1", {"nvidia.com/gpu": "4"})]), encoding="utf-8")
    log = "job_id,submit_s,start_s,duration_s,gpus,ran_on\na,0,0,60,8,n1:8\nb,0,60,60,8,n2:8\n"
    (tmp_path / "log.csv").write_text(log, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "described"),
    [
        (("--scontrol", "nodes.txt", "--topology", "topology.txt"), "nodes: 2 racks, 4 machines x 8 GPUs (a100)"),
        (("--kubectl", "nodes.json"), "nodes: 1 rack, 1 machine x 4 GPUs"),
        (("--log", "log.csv"), "from-log: 1 rack, 2 machines x 8 GPUs"),
    ],
)
def test_what_is_printed_is_what_is_written(
    run: Run, source: tuple[str, ...], described: str, folder: Path
) -> None:
    printed = run("cluster", "import", *source)
    assert printed.code == 0
    assert run("cluster", "import", *source, "-o", "my.yaml").code == 0
    assert (folder / "my.yaml").read_text(encoding="utf-8") == printed.out
    assert Cluster.from_file("my.yaml").describe().startswith(described)
    again = run("cluster", "import", *source, "-o", "my.yaml")
    assert again.code != 0
    assert "my.yaml: is there already" in again.err
    assert described in run("cluster", "show", "my.yaml").out
    assert run("cluster", "show", "my.yaml", "--json").json["cluster"].startswith(described)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give one of --scontrol, --kubectl and --log"),
        (("--scontrol", "nodes.txt", "--log", "log.csv"), "give one of --scontrol, --kubectl and --log"),
        (("--kubectl", "nodes.json", "--topology", "topology.txt"), "--topology: goes with --scontrol"),
        (("--scontrol", "nodes.txt", "--rack-label", "x"), "--rack-label: goes with --kubectl"),
        (("--scontrol", "nowhere.txt"), "nowhere.txt: there is no such file"),
        (("--scontrol", "."), ".: is not a file"),
        (("--kubectl", "nodes.txt"), "nodes.txt:1: not JSON"),
        (("--scontrol", "topology.txt"), "no line begins with NodeName="),
    ],
)
def test_wrong_arguments_are_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    ran = run("cluster", "import", *arguments)
    assert ran.code != 0
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_what_if_guesses_the_cluster_from_the_log(run: Run, folder: Path) -> None:
    quick = ("--no-search", "--policies", "best-fit", "--processes", "1")
    assert "a lower bound" in run("what-if", "log.csv", *quick).out.replace("\n", " ")
    (folder / "plain.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,60,8\n", encoding="utf-8")
    refused = run("what-if", "plain.csv", *quick)
    assert refused.code != 0
    assert "does not say on which machines jobs ran: give the cluster (--cluster)" in refused.err
    assert "--cluster: from-log needs a log" in run("simulate", "philly", "--cluster", "from-log").err


def test_a_type_that_the_cluster_has_not_is_one_line(run: Run, folder: Path) -> None:
    (folder / "c.yaml").write_text("machines: [{gpus: 8, gpu_type: a100}]", encoding="utf-8")
    text = "job_id,submit_s,duration_s,gpus,gpu_type\na,0,60,8,A100\nb,0,60,8,h100\n"
    (folder / "typed.csv").write_text(text, encoding="utf-8")
    refused = run("simulate", "typed.csv", "-c", "c.yaml")
    assert refused.code != 0
    assert "'h100' is not in the cluster, which has a100 (1 job)" in refused.err
    skipped = run("simulate", "typed.csv", "-c", "c.yaml", "--skip-unknown-types")
    assert skipped.code == 0
    assert "rows of the trace skipped: 1 row: gpu_type: not in the cluster" in skipped.out
    warned = run("what-if", "typed.csv", "-c", "c.yaml", "--skip-unknown-types", "--no-search", "--processes", "1")
    assert "Skipped because the cluster has no GPUs of their type: 1 job of 2" in warned.out
