"""Job files: what is wrong with them is said in one line, with the field."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.constraints import Constraints
from cranny.model.cluster import Cluster, Machine, Switch, mask_of
from cranny.model.errors import InputError
from cranny.service.job_spec import parse, read
from cranny.service.redact import redact, redact_spec, secrets_of

PROFILE = {"grad_bytes": 1, "iteration_ms": 1}
GOOD: dict[str, Any] = {"command": ["python", "train.py"], "gpus": 4}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"gpus": 0}, "gpus: must be a whole number from 1"),
        ({"gpus": "4"}, "gpus: must be a whole number"),
        ({"gpus": True}, "gpus: must be a whole number"),
        (
            {"command": "python train.py"},
            "command must be a list of arguments; one line of text needs `shell: true`",
        ),
        ({"command": ["a"], "shell": True}, "command must be one line of text"),
        ({"command": []}, "command"),
        ({"command": [""]}, "command is empty"),
        ({"command": ["a", 1]}, r"command\[1\]: must be text, not 1: put it in quotes$"),
        ({"command": [True]}, r"command\[0\]: must be text, not true: put it in quotes$"),
        ({"command": [None]}, r"command\[0\]: must be text, not nothing$"),
        ({"command": ["a\0"]}, r"command\[0\]: must not hold the character NUL"),
        ({"command": ["a"] * 1001}, "command: is longer than 1000 entries"),
        ({"name": "a\u202eb"}, r"name: must be printable text of 1 to 100 characters, not 'a\\u202eb'$"),
        ({"env": {"A": 1}}, "env.A: must be text, not 1: put it in quotes$"),
        ({"env": {"gpus": 1}}, "env.gpus: must be text, not 1: put it in quotes$"),
        ({"env": {"A=B": "1"}}, "env: 'A=B' is no name"),
        ({"env": {"A": "x" * 40_000}}, "env.A: is longer than"),
        ({"cwd": "here"}, "cwd: must be an absolute path"),
        ({"constraints": {"same_rack": "yes"}}, "constraints.same_rack: must be `required` or `preferred`"),
        (
            {"constraints": {"spread": 1}},
            "constraints.spread: must be a whole number of racks from 2 up, not 1",
        ),
        (
            {"constraints": {"spread": 2, "same_rack": "preferred"}},
            "constraints.spread: a job cannot be spread over racks and have same_rack",
        ),
        (
            {"constraints": {"exclude": ["a", ""]}},
            r"constraints.exclude\[1\]: must be the name of a machine, not ''$",
        ),
        ({"duration_s": float("nan")}, "duration_s: must be a number of seconds, not nan$"),
        ({"duration_s": "1"}, "duration_s: must be a number of seconds, not '1'$"),
        ({"duration_s": -1}, "duration_s: must be a positive number of seconds, not -1$"),
        ({"duration_s": 1e12}, "duration_s: must be at most 315360000 seconds, not 1000000000000.0$"),
        ({"model": "vgg16", "profile": {"grad_bytes": 1, "iteration_ms": 1}}, "`model` or `profile`, not both"),
        ({"gpu": 4}, "gpu: is not a known field"),
        ({"profile": {"grad_bytes": 1}}, "profile.iteration_ms: is missing"),
        ({"profile": {**PROFILE, "batch": 0}}, "profile.batch: must be a whole number from 1 to"),
        (
            {"profile": {**PROFILE, "gradient_buckets": 1}},
            "profile.gradient_buckets: must be a list of pairs, ms and bytes, not 1$",
        ),
        (
            {"profile": {**PROFILE, "gradient_buckets": [[1.0, 1], 7]}},
            r"profile.gradient_buckets\[1\]: must be a pair of ms and bytes, not 7$",
        ),
        (
            {"profile": {**PROFILE, "gradient_buckets": [[-1.0, 1]]}},
            r"profile.gradient_buckets\[0\]\[0\]: must be a pair of ms and bytes, not -1.0$",
        ),
        ({"max_retries": 101}, "max_retries: must be a whole number from 0 to 100"),
        ({"movable": "yes"}, "movable: must be true or false, not 'yes'$"),
        ({"movable": True, "restart_s": 0}, "restart_s: must be a positive number of seconds, not 0$"),
        ({"checkpoint": "none", "restart_s": 30}, "restart_s is for a job that can go on after it was stopped"),
        ({"checkpoint": "none", "movable": True}, "movable is for a job that can go on after it was stopped"),
        (
            {"checkpoint": "never"},
            "checkpoint: must be `none`, or a mapping with signal and grace_s, not 'never'$",
        ),
        (
            {"checkpoint": {"signal": "SIGKILL"}},
            "checkpoint.signal: must be SIGTERM, SIGUSR1 or SIGUSR2, not 'SIG",
        ),
        ({"checkpoint": {"grace": 5}}, "checkpoint.grace: is not a known field$"),
        ({"checkpoint": {"grace_s": 0}}, "checkpoint.grace_s: must be a positive number of seconds, not 0$"),
        ({"speeds": {}}, "speeds: must be a mapping of GPU types to numbers, not a mapping of fields$"),
        ({"speeds": {"T4": 0}}, "speeds.T4: must be a positive number, not 0$"),
        ({"speeds": {"T4": "1"}}, "speeds.T4: must be a positive number, not '1'$"),
        ({"speeds": {f"T{number}": 1.0 for number in range(101)}}, "speeds: is longer than 100 entries$"),
    ],
)
def test_what_is_wrong_is_said_with_the_field(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse({**GOOD, **change})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model": "vgg17"}, "did you mean 'vgg"),
        ({"collective": "rings"}, "did you mean 'ring'"),
        ({"tp": 3}, "cannot be split"),
        ({"least_gpus": 8}, "least_gpus must be a whole number from 1 to 4"),
    ],
)
def test_what_policies_could_not_use_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse({**GOOD, **change}).job("job-1", "ann", 0.0)


def test_a_machine_to_exclude_must_exist() -> None:
    spec = parse({**GOOD, "constraints": {"exclude": ["rack0-machine0", "rack0-machine9"]}})
    with pytest.raises(InputError, match=r"constraints.exclude\[1\]: unknown machine 'rack0-machine9'"):
        spec.check_constraints(Cluster.fat_tree(1, 2, 4))


def test_a_job_is_spread_over_racks_that_there_are() -> None:
    cluster = Cluster.fat_tree(3, 2, 4)
    spread = {**GOOD, "gpus": 4, "constraints": {"spread": 3}}
    assert parse(spread).constraints_on(cluster) == Constraints(spread=3)
    with pytest.raises(InputError, match=r"constraints\.spread: 3 racks, but the job has 2 GPUs"):
        parse({**spread, "gpus": 2}).check_constraints(cluster)
    with pytest.raises(InputError, match=r"constraints\.spread: 3 racks, but the cluster has 2 racks"):
        parse(spread).check_constraints(Cluster.fat_tree(2, 2, 4))


def test_a_job_is_as_its_file_says() -> None:
    spec = parse({**GOOD, "model": "vgg16", "tp": 2, "queue": "vision", "constraints": {"gpu_type": "H200"}})
    job = spec.job("job-1", "ann", 5.0)
    assert (job.gpus, job.profile.name, job.tp, job.tenant, job.gpu_type) == (4, "vgg16", 2, "vision", "H200")
    assert spec.argv == ("python", "train.py")
    assert parse({"command": "a | b", "shell": True, "gpus": 1}).argv == ("/bin/sh", "-c", "a | b")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, (False, 0.0)),
        ({"restart_s": 5}, (False, 5.0)),
        ({"movable": True}, (True, 60.0)),
        ({"movable": True, "restart_s": 5}, (True, 5.0)),
        ({"checkpoint": {}}, (True, 60.0)),
        ({"checkpoint": {"signal": "SIGUSR1", "grace_s": 5}, "restart_s": 7}, (True, 7.0)),
        ({"checkpoint": "none"}, (False, 0.0)),
        ({"checkpoint": None}, (False, 0.0)),
    ],
)
def test_a_job_says_whether_it_may_be_stopped_and_what_that_costs(
    change: dict[str, Any], wanted: tuple[bool, float]
) -> None:
    spec = parse({**GOOD, **change})
    assert (spec.may_stop, spec.job("job-1", "ann", 0.0).restart_s) == wanted


def test_a_job_file_says_what_is_wrong_with_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: [a]\ngpus: 1\ncheckpoint: none\n")
    assert read(file)["checkpoint"] == "none"
    file.write_text("command: [a]\ngpus: 1\ncheckpoint:\n  grac_s: 5\n")
    with pytest.raises(
        InputError, match=r"job.yaml:3: checkpoint: unknown field 'grac_s'; did you mean 'grace_s'"
    ):
        read(file)


def test_torchrun_may_be_written_before_the_script_or_asked_for() -> None:
    written = parse({"command": ["torchrun", "train.py", "--lr", "1"], "gpus": 4})
    asked = parse({"command": ["train.py", "--lr", "1"], "gpus": 4, "torchrun": True})
    assert written.argv == asked.argv == ("train.py", "--lr", "1")
    assert written.by_torchrun
    assert asked.by_torchrun
    assert not parse(GOOD).by_torchrun
    assert not parse({"command": "torchrun --nproc-per-node=1 a.py", "shell": True, "gpus": 1}).by_torchrun


def test_stored_events_may_name_constraints_as_before() -> None:
    spec = parse({**GOOD, "wishes": {"same_rack": "required"}})
    assert spec.constraints.same_rack == "required"
    assert spec == parse({**GOOD, "constraints": {"same_rack": "required"}})


def test_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: [a]\ngpus: 2\nconstraints:\n  same_rak: required\n")
    with pytest.raises(
        InputError, match=r"job.yaml:4: constraints: unknown field 'same_rak'; did you mean 'same_rack'"
    ):
        read(path)
    path.write_text("command: [a]\nenv:\n  A: 1\ngpus: 2\n")
    with pytest.raises(InputError, match=r"job.yaml:3: env.A: must be text"):
        read(path)
    path.write_text("- a\n")
    with pytest.raises(InputError, match="must be a mapping of fields"):
        read(path)


def test_secrets_are_hidden() -> None:
    env = {"API_TOKEN": "abcdef", "HF_KEY": "k", "PLAIN": "x", "DB": "postgres://u:pw@h/d"}
    spec = {**GOOD, "env": env, "secrets": {"ANY": "thing1"}}
    shown = redact_spec(spec)
    assert shown["env"] == {"API_TOKEN": "***", "HF_KEY": "***", "PLAIN": "x", "DB": "***"}
    assert shown["secrets"] == {"ANY": "***"}
    assert redact(b"say abcdef and thing1!", secrets_of(spec)) == b"say ****** and ******!"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "command",
    "shell",
    "gpus",
    "name",
    "model",
    "profile",
    "tp",
    "env",
    "constraints",
    "cwd",
    "duration_s",
    "x",
]


@settings(max_examples=examples(100))
@given(st.dictionaries(st.sampled_from(FIELDS), values, max_size=5))
def test_any_file_is_a_job_or_refused_in_one_line(fields: dict[str, Any]) -> None:
    try:
        parse({**GOOD, **fields})
    except InputError as error:
        assert str(error)  # noqa: PT017 - refused is fine
        assert "\n" not in str(error)  # noqa: PT017


def test_resources_and_shapes_are_checked_against_the_cluster() -> None:
    machines = (
        Machine("a", 4, "t4", {"cpus": 8}, frozenset({"ib"})),
        Machine("b", 4, "t4", {"cpus": 8}),
    )
    cluster = Cluster.of(Switch("rack", machines, (100.0, 100.0)), {"main": ["a"]})

    def refused(**fields: Any) -> str:
        with pytest.raises(InputError) as caught:
            parse({"command": ["true"], "gpus": 4, **fields}).check_constraints(cluster)
        return str(caught.value)

    spec = parse({"command": ["true"], "gpus": 2, "resources": {"cpus": 2}, "constraints": {"features": ["ib"]}})
    spec.check_constraints(cluster)
    assert spec.constraints_on(cluster) == Constraints(mask_of([1]))
    assert spec.job("a", "ann", 0.0).resources == {"cpus": 2}
    assert refused(resources={"ssd": 1}) == "resources.ssd: no machine of the cluster has any"
    assert refused(resources={"cpus": 0}) == "resources.cpus: must be a whole number from 1 up, not 0"
    assert refused(constraints={"features": ["nvlink"]}) == (
        "constraints.features: no machine has nvlink; there are ib"
    )
    assert refused(constraints={"partition": "man"}) == (
        "constraints.partition: unknown partition 'man'; did you mean 'main'?"
    )
    assert refused(constraints={"per_machine": 3}) == "constraints.per_machine: 3 of 4 GPUs: it is no part"
    assert refused(constraints={"per_machine": 2, "spread": 2}).startswith("constraints.per_machine: a job cannot")
