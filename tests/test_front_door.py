"""The front door: what a user, or a check from outside, calls first."""

import subprocess
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import cranny
from cranny.core.protocol import default_order
from cranny.policies import TABLE, policy_class

PUBLIC = {
    "Cluster",
    "ClusterState",
    "CrannyError",
    "InputError",
    "Job",
    "ModelProfile",
    "Placement",
    "PlacementError",
    "Plan",
    "Result",
    "Scenario",
    "StalePlanError",
    "Trace",
    "__version__",
    "compare",
    "generate_trace",
    "policies",
    "policy",
    "read_trace",
    "simulate",
    "traffic",
    "what_if",
}
HEAVY = (
    "polars",
    "pydantic",
    "yaml",
    "typer",
    "rich",
    "ortools",
    "numpy",
    "pandas",
    "scipy",
    "torch",
    "fastapi",
    "sqlalchemy",
)

CLUSTER = """
name: lab
link_gbps: 100
racks:
  - machines:
      - {gpus: 8, gpu_type: h200, count: 2}
      - {gpus: 4, gpu_type: t4, uplink_gbps: 25}
  - machines: [{gpus: 8, count: 2}]
    pat_gbps: 400
"""


def test_the_code_of_the_design_runs(tmp_path: Path) -> None:
    cluster = cranny.Cluster.fat_tree(
        racks=64, machines_per_rack=8, gpus_per_machine=8, link_gbps=100, oversubscription=1.0
    )
    assert cluster.gpus == 4096
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    cluster = cranny.Cluster.from_file(str(tmp_path / "cluster.yaml"))
    assert cluster.gpus == 36
    state = cranny.ClusterState(cluster)
    job = cranny.Job(id="a", gpus=16, model="vgg16", collective="halving-doubling")
    placement = cranny.policy("titan").place(job, state.snapshot())
    assert placement is not None
    assert isinstance(placement.machines, tuple)
    assert len(placement.machines) == 16
    assert all(type(machine) is int for machine in placement.machines)
    assert "16 workers" in placement.explain()
    assert placement.facts["gpus"] == 16
    assert isinstance(placement.facts, dict)
    state.place(job, placement)
    assert int(state.free.sum()) == 20
    state.release("a")
    assert state.free.shape == (5,)
    assert state.free.tolist() == [8, 8, 4, 8, 8]

    by_hand = cranny.Placement(machines=(1, 2, 1, 2))
    job = cranny.Job(id="b", gpus=4, model="vgg16", collective="halving-doubling")
    assert cranny.traffic(job, by_hand.machines).cross_machine_bytes == job.profile.grad_bytes
    assert cranny.traffic(job, (3, 3, 3, 3)).cross_machine_bytes == 0

    trace = cranny.generate_trace("philly", jobs=200, seed=0)
    trace.write(tmp_path / "trace.parquet")
    trace = cranny.read_trace(str(tmp_path / "trace.parquet"))
    assert len(trace) == 200
    result = cranny.simulate(cluster, trace, policy="titan", network="isolated", seed=0)
    assert result.summary["jobs_done"] + result.summary["jobs_skipped"] == 200
    assert result.jobs.height == 200
    assert result.timeline.height > 0
    result.save(tmp_path / "saved")
    assert cranny.Result.load(tmp_path / "saved").summary == result.summary
    result.report(tmp_path / "out.html")
    assert (tmp_path / "out.html").stat().st_size > 10_000

    listed = cranny.policies()
    assert "titan" in listed
    assert "ICNP'24" in listed["titan"]


def made_without_arguments() -> list[str]:
    """Return the policies that can be made without arguments, but for the one that is meant for tiny clusters."""
    return [name for name, entry in TABLE.items() if not entry.host and name != "exact"]


@pytest.mark.parametrize("name", made_without_arguments())
def test_a_policy_object_runs_as_its_name_does(name: str) -> None:
    cluster = cranny.Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)
    trace = cranny.generate_trace("philly", jobs=25, seed=1)
    named = cranny.simulate(cluster, trace, policy=name)
    made = cranny.simulate(cluster, trace, policy=policy_class(name)())
    assert made.jobs.equals(named.jobs)
    for setting in ("order", "period_s"):
        assert made.settings[setting] == named.settings[setting]


@pytest.mark.parametrize("name", TABLE)
def test_the_table_has_the_order_of_the_object(name: str) -> None:
    assert default_order(cranny.policy(name)) == TABLE[name].order


def test_none_means_that_a_job_must_wait() -> None:
    state = cranny.ClusterState(cranny.Cluster.single_rack(1, 4))
    assert cranny.policy("titan").place(cranny.Job(id="a", gpus=5), state.snapshot()) is None


def test_the_real_traces_beside_the_project_can_be_read(shared: Path) -> None:
    file = shared / "traces" / "elasticflow_itp.parquet"
    if not file.is_file():
        pytest.skip("the trace elasticflow_itp.parquet is not beside the project")
    assert len(cranny.read_trace(file)) > 60_000


def test_all_names_are_public_and_there() -> None:
    assert set(cranny.__all__) == PUBLIC
    assert sorted(cranny.__all__) == cranny.__all__
    assert set(dir(cranny)) == PUBLIC
    for name in cranny.__all__:
        assert getattr(cranny, name) is not None


def test_every_public_name_says_what_it_is() -> None:
    for name in PUBLIC - {"__version__"}:
        assert getattr(cranny, name).__doc__


@pytest.mark.parametrize("first", ["pass", "import cranny.policies", "cranny.policy('titan')", "cranny.simulate"])
def test_policies_are_listed_whatever_was_loaded_before(first: str) -> None:
    # The function has the name of the folder in which the policies live.
    code = f"import cranny; {first}; cranny.policies()['titan']; import cranny.policies; cranny.policies.TABLE"
    loaded_by(f"{code}; cranny.policies()['titan']")


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'cranny' has no attribute 'simulat'"):
        _ = cranny.simulat


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after some code."""
    script = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_cranny_loads_nothing_heavy() -> None:
    assert not loaded_by("import cranny; dir(cranny)") & set(HEAVY)


def test_placing_a_job_needs_neither_tables_nor_files() -> None:
    code = (
        "import cranny; state = cranny.ClusterState(cranny.Cluster.single_rack(2, 4));"
        "cranny.policy('titan').place(cranny.Job(id='a', gpus=5), state.snapshot()).explain()"
    )
    assert not loaded_by(code) & (set(HEAVY) - {"numpy"})


# -- what a policy sees cannot be changed ---------------------------------------------------------------------


@pytest.fixture
def busy() -> cranny.ClusterState:
    """Return a state with one job across two machines."""
    state = cranny.ClusterState(cranny.Cluster.single_rack(2, 4))
    state.place(cranny.Job(id="a", gpus=4), cranny.Placement((0, 0, 1, 1)))
    return state


def test_a_snapshot_does_not_change_when_the_state_does(busy: cranny.ClusterState) -> None:
    view = busy.snapshot()
    busy.place(cranny.Job(id="b", gpus=2), cranny.Placement((0, 0)))
    busy.release("a")
    busy.fail(1)
    assert view.free.tolist() == [2, 2]
    assert list(view.running) == ["a"]
    assert view.is_up(1)
    assert view.link_use_gbps(0) > 0
    assert busy.snapshot().free.tolist() == [2, 0]


def test_a_snapshot_cannot_be_written_to(busy: cranny.ClusterState) -> None:
    view = busy.snapshot()
    with pytest.raises(ValueError, match="read-only"):
        view.free[0] = 4
    with pytest.raises(TypeError):
        view.running["b"] = view.running["a"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        view.free = view.free  # type: ignore[misc]
    assert busy.free.tolist() == [2, 2]


def test_writing_to_the_free_gpus_of_a_state_changes_nothing(busy: cranny.ClusterState) -> None:
    busy.free[0] = 99
    busy.running.clear()
    assert busy.free.tolist() == [2, 2]
    assert list(busy.running) == ["a"]


def test_what_if_is_a_value(busy: cranny.ClusterState) -> None:
    view = busy.snapshot()
    then = view.after(cranny.Placement((0, 1)))
    assert then.free.tolist() == [1, 1]
    assert view.free.tolist() == [2, 2]
    assert busy.free.tolist() == [2, 2]
    assert np.array_equal(view.without("a").free, [4, 4])


def test_values_are_frozen() -> None:
    job, placement = cranny.Job(id="a", gpus=2), cranny.Placement((0, 1))
    with pytest.raises(AttributeError):
        job.gpus = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        placement.machines = (0, 0)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        cranny.Cluster.single_rack(1, 1).name = "x"  # type: ignore[misc]


def test_results_print_as_a_few_lines_and_as_a_table_in_a_notebook() -> None:
    cluster = cranny.Cluster.fat_tree(2, 4, 8)
    trace = cranny.generate_trace("philly", jobs=40, seed=1, load=0.7, gpus=64)
    found = (
        cranny.simulate(cluster, trace),
        cranny.compare(cluster, trace, ["cranny", "best-fit"], processes=1),
        cranny.what_if(trace, cluster, ["cranny", "best-fit"], processes=1, search=False),
    )
    for each in found:
        text = repr(each)
        assert "cranny" in text
        assert "shape:" not in text
        assert len(text.splitlines()) <= 12
        assert "<table>" in each._repr_html_()


def test_a_trace_may_be_text(tmp_path: Path) -> None:
    cluster = cranny.Cluster.fat_tree(1, 4, 8)
    log = tmp_path / "log.csv"
    log.write_text("job_id,submit_s,gpus,duration_s\na,0,4,60\nb,5,8,60\n")
    assert cranny.simulate(cluster, str(log)).summary["jobs_done"] == 2
    assert len(cranny.compare(cluster, log, ["cranny", "best-fit"], processes=1)) == 2
    for wrong, told in (
        ("log.txt", "log.txt: there is no such file"),
        ("phily", "did you mean 'philly'"),
        (3, "trace: must be a trace, jobs, the path of a trace file, or a preset"),
    ):
        with pytest.raises(cranny.InputError, match=told):
            cranny.simulate(cluster, cast("str", wrong))
    with pytest.raises(cranny.InputError, match="cluster: must be a Cluster"):
        cranny.simulate(cast("cranny.Cluster", "4x8"), log)
