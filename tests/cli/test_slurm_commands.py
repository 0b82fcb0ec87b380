"""`cranny doctor slurm`, `cranny topology` and `cranny what-if --slurm`, with a real Slurm that has accounting."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.slurm.accounted_slurm import AccountedSlurm, accounting_installed
from tests.slurm.real_slurm import installed, until

from cranny.backends.slurm import slurm_checks
from cranny.backends.slurm.slurm_checks import SlurmChecks
from cranny.backends.slurm.slurm_commands import SlurmCommands
from cranny.service.clock import wall_clock

LINKS = """
racks:
  - name: rack1
    uplink_gbps: 400
    machines: [{names: "node[1-4]", gpus: 8, uplink_gbps: 100}]
  - name: rack2
    uplink_gbps: 50
    machines: [{names: "node[5-7]", gpus: 8, uplink_gbps: 100}]
"""
NOBODY = 65534
Found = dict[str, list[tuple[str, str, str]]]


@pytest.fixture(scope="module")
def accounted() -> Iterator[AccountedSlurm]:
    if not (installed() and accounting_installed()) and "CI" not in os.environ:
        pytest.skip("needs root, and the packages slurmctld, slurmd, slurmdbd and mariadb-server")
    with AccountedSlurm(nodes=6) as made:
        yield made


@pytest.fixture
def slurm(accounted: AccountedSlurm, monkeypatch: pytest.MonkeyPatch) -> AccountedSlurm:
    monkeypatch.setenv("SLURM_CONF", str(accounted.conf))
    return accounted


@pytest.fixture
def links(tmp_path: Path) -> Path:
    file = tmp_path / "links.yaml"
    file.write_text(LINKS)
    return file


def checked(now_s: Callable[[], float] = wall_clock) -> Found:
    found: Found = {}
    for each in SlurmChecks(SlurmCommands(), now_s).results():
        found.setdefault(each.about, []).append((each.level, each.found, each.advice))
    return found


@pytest.mark.usefixtures("slurm")
def test_a_slurm_that_cranny_can_use(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_checks, "SLOW_S", 60.0)  # this machine may be busy
    shown = run("doctor", "slurm", "--json")
    assert shown.code == 0, shown.out
    levels = {each["about"]: each["level"] for each in shown.json["checks"]}
    assert levels == {
        "commands": "ok",
        "controller": "ok",
        "clock": "ok",
        "rights": "note",  # root may do more than is needed
        "scheduling": "ok",
        "GPUs": "ok",
        "topology": "warning",  # the speeds of links are assumed
        "marking": "note",
        "accounting": "ok",
    }
    assert "48 GPUs on 6 nodes: h100" in shown.out
    assert "cranny can work with this Slurm" in run("doctor", "slurm").out


def test_what_to_change_is_said(slurm: AccountedSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    slurm.call("scontrol", "update", "NodeName=node6", "State=DRAIN", "Reason=fan")
    found = checked(lambda: wall_clock() + 90)
    slurm.call("scontrol", "update", "NodeName=node6", "State=RESUME")
    assert found["rights"] == [
        (
            "error",
            "nobody may not place jobs of others",
            "sacctmgr modify user nobody set adminlevel=operator (or serve with --recommend-only)",
        )
    ]
    ((level, said, advice),) = found["clock"]
    assert level == "error"
    assert said.endswith("s behind")
    assert "NTP" in advice
    assert found["nodes"] == [("note", "node6: drain in Slurm: fan", "")]


def test_an_operator_has_the_rights(slurm: AccountedSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.call("sacctmgr", "-i", "add", "account", "all")
    slurm.call("sacctmgr", "-i", "add", "user", "nobody", "account=all", "adminlevel=operator")
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert checked()["rights"] == [("ok", "nobody is operator in Slurm", "")]


def test_a_controller_that_is_down_and_commands_that_are_missing(
    slurm: AccountedSlurm, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slurm.stop_controller()
    try:
        shown = run("doctor", "slurm", "--json")
        last = shown.json["checks"][-1]
    finally:
        slurm.start_controller()
        slurm.all_idle()
    assert shown.code == 1
    assert (last["about"], last["level"]) == ("controller", "error")
    assert last["advice"].startswith("start slurmctld")
    monkeypatch.setenv("PATH", str(tmp_path))
    ((level, said, advice),) = checked()["commands"]
    assert (level, said) == ("error", "not found: scontrol, squeue, sinfo, sbatch, scancel")
    assert "slurm-client" in advice


@pytest.mark.usefixtures("slurm")
def test_links_are_compared_with_the_nodes_of_slurm(run: Run, links: Path) -> None:
    shown = run("topology", "lint", "slurm", "--links", links, "--json")
    assert [(each["where"], each["problem"]) for each in shown.json["problems"]] == [
        ("node7", "in the file of links, but not in Slurm: is the name right?"),
        ("rack2", "its uplink of 50 Gbps is slower than a link below, 100 Gbps"),
    ]
    drawn = run("topology", "show", "slurm", "--links", links).out
    assert "├── rack1: 4 machines, 32 GPUs, uplink 400 Gbps (1:1)" in drawn
    assert "node[5-6]: 8 h100 GPUs each, 100 Gbps" in drawn
    nested = run("topology", "show", "slurm", "--json").json
    assert [each["name"] for each in nested["switches"]] == ["rack1", "rack2"]


def test_a_node_below_two_switches_is_named(
    run: Run, slurm: AccountedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = tmp_path / "topology"
    twice.write_text(slurm.conf.with_name("topology.conf").read_text().replace("Nodes=node5", "Nodes=node4,node5"))
    fake = tmp_path / "scontrol"  # a real one does not start with such a file
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *topology*) exec cat {twice};; *) exec /usr/bin/scontrol "$@";; esac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shown = run("topology", "lint", "slurm")
    assert shown.code != 0
    assert "node node4 is below rack1 (line 1) and below rack2" in shown.err


def test_a_what_if_takes_log_and_cluster_from_slurm(run: Run, slurm: AccountedSlurm) -> None:
    shape = ("-N2", "--gpus-per-node=4")
    jobs = [slurm.sbatch(*shape, "-wnode[1-2]", script="#!/bin/sh\nsleep 1\n") for _ in range(3)]
    until(lambda: all(map(slurm.accounted, jobs)), "the ends of jobs in the database")
    shown = run("what-if", "--slurm", "--since", "1h", "--policies", "best-fit", "--no-search", "--json")
    assert shown.code == 0, shown.err
    assert shown.json["cluster"].startswith("tests: 2 racks, 6 machines x 8 GPUs (h100)")
    assert shown.json["as_it_was"]["is_known"]
    assert {case["name"]: case["waits"]["jobs"] for case in shown.json["cases"]} == {"as it was": 3, "best-fit": 3}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("what-if",), "LOG: give a job log, such as the output of `sacct -D -X -P`, or --slurm"),
        (("what-if", "log.txt", "--slurm"), "LOG: not with --slurm, which takes the log from sacct"),
        (("what-if", "log.txt", "--since", "3d"), "--since: goes with --slurm; a log has --from"),
        (("topology", "show", "1x2x4", "--links", "my.yaml"), "--links: goes with the cluster `slurm`"),
    ],
)
def test_options_that_do_not_go_together(run: Run, words: tuple[str, ...], said: str) -> None:
    shown = run(*words)
    assert shown.code != 0
    assert said in shown.err
