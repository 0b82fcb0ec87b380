"""Reading sweeps: cells in a fixed order, keys that change with what matters, and errors with file and line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cranny.analysis.sweep import sweep_file as sweep_file
from cranny.analysis.sweep.cell import at_load
from cranny.analysis.sweep.sweep_file import Sweep, read_sweep
from cranny.model.errors import InputError
from cranny.traces.read import read_trace

SMALL = {
    "traces": "[philly]",
    "clusters": "[1x2x4]",
    "policies": "[titan]",
}
JOBS = "job_id,submit_s,gpus,duration_s\na,0,2,100\nb,50,2,100\nc,100,4,50\n"
CLUSTER = "machines: [{gpus: 4, count: 2}]\n"
PROFILES = '{"models": {"own": {"measured": [{"grad_bytes": 1e6, "iteration_ms": 10}]}}}'

Make = Callable[..., Sweep]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what reads a small sweep with some fields changed."""
    (tmp_path / "jobs.csv").write_text(JOBS, encoding="utf-8")
    (tmp_path / "lab.yaml").write_text(CLUSTER, encoding="utf-8")
    (tmp_path / "models.json").write_text(PROFILES, encoding="utf-8")

    def make(**changed: str) -> Sweep:
        path = tmp_path / "study.yaml"
        fields = {**SMALL, **changed}
        path.write_text("".join(f"{name}: {value}\n" for name, value in fields.items()), encoding="utf-8")
        return read_sweep(path)

    return make


def key(sweep: Sweep) -> str:
    (cell,) = sweep.cells
    return cell.key


def test_cells_are_all_combinations_in_the_order_of_the_file(make: Make) -> None:
    sweep = make(policies="[titan, best-fit]", loads="[0.5, 0.9]", seeds="[7, 3]", clusters="[1x2x4, 1x4x4]")
    told = [tuple(cell.axes.values()) for cell in sweep.cells]
    assert len(told) == len(set(told)) == len({cell.key for cell in sweep.cells}) == 16
    assert [*told[:3], told[-1]] == [
        ("philly", "1x2x4", 0.5, "titan", 7),
        ("philly", "1x2x4", 0.5, "titan", 3),
        ("philly", "1x2x4", 0.5, "best-fit", 7),
        ("philly", "1x4x4", 0.9, "best-fit", 3),
    ]
    assert sweep.name == "study"


def test_a_number_of_seeds_counts_from_zero(make: Make) -> None:
    assert [cell.axes["seed"] for cell in make(seeds="3").cells] == [0, 1, 2]


def test_a_file_is_replayed_as_it_is_unless_loads_are_given(make: Make) -> None:
    assert [cell.axes["load"] for cell in make(traces="[jobs.csv, philly]").cells] == [None, 0.8]
    assert [cell.axes["load"] for cell in make(traces="[jobs.csv]", loads="[0.5, 2]").cells] == [0.5, 2.0]


def test_labels_tell_what_is_special(make: Make) -> None:
    sweep = make(
        policies="[tiresias, {name: tiresias, order: fifo, options: {skew_limit: 2}}]",
        clusters="[{cluster: 1x2x4, link_gbps: 25}]",
    )
    assert [cell.axes["policy"] for cell in sweep.cells] == ["tiresias", "tiresias (order=fifo, skew_limit=2)"]
    assert sweep.cells[0].axes["cluster"] == "1x2x4 (link_gbps=25)"
    assert [cell.settings["order"] for cell in sweep.cells] == ["las", "fifo"]


@pytest.mark.parametrize(
    "changed",
    [
        {"policies": "[best-fit]"},
        {"policies": "[{name: titan, order: sjf}]"},
        {"policies": "[{name: titan, options: {phase_budget_s: 0.5}}]"},
        {"order": "sjf"},
        {"clusters": "[1x4x4]"},
        {"clusters": "[lab.yaml]"},
        {"clusters": "[{cluster: 1x2x4, link_gbps: 10}]"},
        {"traces": "[itp]"},
        {"traces": "[jobs.csv]"},
        {"loads": "[0.5]"},
        {"seeds": "[1]"},
        {"jobs": "10"},
        {"network": "instant"},
        {"collective": "ring"},
        {"price_per_gpu_hour": "2"},
        {"profiles": "models.json"},
    ],
    ids=str,
)
def test_the_key_changes_with_every_setting(make: Make, changed: dict[str, str]) -> None:
    assert key(make()) != key(make(**changed))


def test_the_key_changes_with_the_version_and_with_the_contents_of_files(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"traces": "[jobs.csv]", "clusters": "[lab.yaml]", "profiles": "models.json"}
    keys = {key(make(**files))}
    (tmp_path / "lab.yaml").write_text(CLUSTER.replace("4", "8"), encoding="utf-8")
    keys.add(key(make(**files)))
    (tmp_path / "models.json").write_text(PROFILES.replace("10", "20"), encoding="utf-8")
    keys.add(key(make(**files)))
    sweep = make(**files)
    (tmp_path / "jobs.csv").write_text(JOBS + "d,120,1,5\n", encoding="utf-8")
    keys.add(key(make(**files)))
    monkeypatch.setattr(sweep_file, "VERSION", "99")
    keys.add(key(make(**files)))
    assert len(keys) == 5
    assert len(sweep.inputs.traces) == len(sweep.inputs.clusters) == 1


def test_the_key_does_not_change_with_names_and_neighbours(make: Make, tmp_path: Path) -> None:
    files = {"traces": "[jobs.csv]", "clusters": "[lab.yaml]"}
    before = key(make(**files))
    for old, new in (("jobs.csv", "renamed.csv"), ("lab.yaml", "hall.yaml")):
        (tmp_path / old).rename(tmp_path / new)
    many = make(traces="[itp, renamed.csv]", clusters="[hall.yaml]", seeds="2", name="another")
    assert before in {cell.key for cell in many.cells}


def test_a_load_stretches_the_times_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS.replace("a,0", "a,10"), encoding="utf-8")
    trace = at_load(read_trace(path), load=0.5, gpus=8)
    assert trace.frame["submit_s"].to_list() == [0.0, 66.667, 150.0]  # 600 GPU-seconds in 150 s x 8 GPUs x 0.5
    assert trace.frame["duration_s"].to_list() == [100.0, 100.0, 50.0]


def test_a_load_needs_time_between_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,gpus,duration_s\na,0,2,100\nb,0,2,100\n", encoding="utf-8")
    with pytest.raises(InputError, match="all jobs are submitted at once"):
        at_load(read_trace(path), load=0.5, gpus=8)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policies": "[titn]"}, "study.yaml:3: policies[0].name: unknown policy 'titn'; did you mean 'titan'?"),
        ({"policies": "titan"}, "study.yaml:3: policies: must be a list of policies, not 'titan'"),
        ({"policies": "[]"}, "study.yaml:3: policies: must be a list of policies, not an empty list"),
        (
            {"policies": "[7]"},
            "policies[0]: must be the name of a policy, or its name, order, period_s and options, not 7",
        ),
        ({"policies": "[titan, titan]"}, "study.yaml:3: policies[1]: titan is given twice"),
        ({"policies": "[{name: titan, ordr: las}]"}, "policies[0]: unknown field 'ordr'; did you mean 'order'?"),
        ({"policies": "[{order: las}]"}, "policies[0].name: is missing"),
        ({"policies": "[{name: titan, order: lass}]"}, "policies[0].order: unknown queue order 'lass'"),
        ({"policies": "[{name: titan, options: 3}]"}, "options: must be a mapping of options to values, not 3"),
        ({"policies": "[{name: titan, options: {x: 1}}]"}, "study.yaml:3: policies[0].options: policy 'titan': "),
        ({"policies": "[{name: titan, options: {phase_budget_s: -1}}]"}, "phase_budget_s must be a positive"),
        ({"clusters": "[0x2x4]"}, "study.yaml:2: clusters[0]: racks must be a whole number from 1"),
        ({"clusters": "[none.yaml]"}, "none.yaml: there is no such file"),
        (
            {"clusters": "[{cluster: lab.yaml, link_gbps: 5}]"},
            "link_gbps, oversubscription and pat_gbps are for RACKSx",
        ),
        ({"clusters": "[{cluster: 1x1x1, link_gbps: -5}]"}, "clusters[0].link_gbps: must be a positive number"),
        ({"traces": "[phily]"}, "traces[0]: unknown trace file or preset 'phily'; did you mean 'philly'?"),
        ({"traces": "[none.csv]"}, "study.yaml:1: traces[0]: "),
        ({"traces": "[models.json]"}, "study.yaml:1: traces[0]: "),
        ({"loads": "[0]"}, "study.yaml:4: loads[0]: must be a positive number, not 0"),
        ({"loads": "[.inf]"}, "loads[0]: must be a positive number, not inf"),
        ({"loads": "0.8"}, "loads: must be a list of positive numbers, not 0.8"),
        ({"loads": "[1, 1.0]"}, "loads[1]: 1.0 is given twice"),
        ({"seeds": "[1, x]"}, "seeds[1]: must be a whole number, zero or more, not 'x'"),
        ({"seeds": "[-1]"}, "seeds[0]: must be a whole number, zero or more, not -1"),
        ({"seeds": "0"}, "seeds: must be a list of whole numbers, or how many there are"),
        ({"seeds": "[2, 2]"}, "seeds[1]: 2 is given twice"),
        ({"jobs": "0"}, "jobs: must be a whole number from 1 to"),
        ({"network": "isolate"}, "study.yaml:4: network: unknown network model 'isolate'"),
        ({"order": "fifi"}, "study.yaml:4: order: unknown queue order 'fifi'"),
        ({"collective": "rung"}, "study.yaml:4: collective: unknown collective 'rung'"),
        ({"price_per_gpu_hour": "-1"}, "price_per_gpu_hour: must be a number, zero or more, not -1"),
        ({"profiles": "none.json"}, "study.yaml:4: profiles: "),
        ({"name": "../x"}, "name: must be a name: letters, digits"),
        ({"polices": "[titan]"}, "study.yaml:4: unknown field 'polices'; did you mean 'policies'?"),
        ({"loads": "[1"}, "cannot be read as YAML or JSON"),
    ],
    ids=str,
)
def test_refuses_in_one_line_with_file_line_and_field(make: Make, changed: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        make(**changed)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_refuses_what_is_no_mapping_or_misses_a_field(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("- titan\n", encoding="utf-8")
    with pytest.raises(InputError, match="must be a mapping of fields, not a list"):
        read_sweep(path)
    path.write_text("policies: [titan]\ntraces: [philly]\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"study.yaml:1: clusters: is missing"):
        read_sweep(path)


def test_refuses_more_cells_than_anybody_could_want(make: Make) -> None:
    with pytest.raises(InputError, match=r"has 1,010,000 cells, more than 1,000,000"):
        make(seeds="10000", loads=str([0.1 + n / 1000 for n in range(101)]))
