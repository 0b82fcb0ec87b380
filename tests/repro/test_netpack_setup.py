"""The jobs and clusters of NetPack's evaluation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cranny.model.errors import InputError
from cranny.repro.experiment import Cell
from cranny.repro.netpack.replays import NetpackRun, scenario
from cranny.repro.netpack.setups import WORKLOADS, NetpackSetup, source
from cranny.repro.netpack.setups import setup as made
from cranny.run import run
from cranny.traces.trace import Trace

ALL = [made(on, workload) for on in ("simulator", "testbed") for workload in WORKLOADS]


def load(setup: NetpackSetup, trace: Trace) -> float:
    frame = trace.frame
    asked = float((frame["gpus"] * frame["duration_s"]).sum())
    return asked / float(frame["submit_s"][-1] - frame["submit_s"][0]) / setup.load_gpus


@pytest.mark.parametrize("setup", ALL, ids=lambda setup: f"{setup.workload}-{setup.all_gpus}")
def test_jobs_ask_for_the_load_and_fit_the_cluster(setup: NetpackSetup) -> None:
    trace = setup.trace(3, None)
    assert len(trace) == setup.jobs
    assert load(setup, trace) == pytest.approx(setup.load)
    assert trace.frame["gpus"].is_between(1, setup.all_gpus).all()
    assert (trace.frame["duration_s"] <= setup.longest_s).all()


def test_drawn_demand_has_the_mean_that_is_asked_for() -> None:
    for workload, deviation in (("poisson", 8**0.5), ("normal", 4.0)):
        gpus = replace(made("simulator", workload), jobs=20_000).trace(0, None).frame["gpus"].to_numpy()
        assert gpus.mean() == pytest.approx(8.0, rel=0.02)
        assert gpus.std() == pytest.approx(deviation, rel=0.05)


def test_seeds_draw_other_jobs_and_the_same_seed_the_same() -> None:
    setup = made("simulator", "poisson")
    first, again, other = (setup.trace(seed, None).frame for seed in (0, 0, 1))
    assert first.equals(again)
    assert not first.equals(other)


def test_the_same_jobs_come_to_clusters_of_every_size() -> None:
    setup = replace(made("simulator", "real"), jobs=300)
    assert replace(setup, machines=63).trace(1, None).frame.equals(setup.trace(1, None).frame)


def test_the_cluster_is_the_papers() -> None:
    cluster = replace(made("simulator", "real"), oversubscription=4.0).cluster()
    assert len(cluster.machines) == 256
    assert cluster.gpus == 1024
    assert cluster.uplink_gbps[cluster.rack_nodes[0]] == 16 * 100.0 / 4
    assert cluster.pat_gbps[cluster.rack_nodes[0]] == 1000.0


def test_a_switch_without_memory_does_not_aggregate() -> None:
    cluster = replace(made("testbed", "poisson"), pat_gbps=0.0).cluster()
    assert cluster.pat_gbps[cluster.rack_nodes[0]] is None


def test_each_seed_has_other_jobs_of_the_real_trace(shared: Path) -> None:
    setup = made("testbed", "real")
    traces = [setup.trace(seed, source(shared / "traces")) for seed in (0, 1, 10)]
    assert load(setup, traces[0]) == pytest.approx(setup.load)
    names = [set(trace.frame["job_id"]) for trace in traces]
    assert names[0].isdisjoint(names[1])
    assert names[0] == names[2]  # the log has ten windows


def test_a_folder_without_the_log_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no philly\.parquet in this folder"):
        source(tmp_path)
    assert source(None) is None


def test_jobs_on_one_machine_in_an_empty_cluster_have_an_efficiency_of_1() -> None:
    setup = replace(made("simulator", "poisson"), jobs=50, load=0.01, mean_gpus=1e-9)
    result = run(scenario(None, Cell(setup, "netpack", 0)))
    found = NetpackRun.of(result).measures
    assert found["de"] == pytest.approx(1.0)
    mean_s = float(np.mean(setup.trace(0, None).frame["duration_s"].to_numpy()))
    assert found["jct"] == pytest.approx(mean_s / 3600)
    assert (result.summary["mean_wait_s"], result.summary["mean_comm_slowdown"], found["machines"]) == (
        0.0,
        1.0,
        0.0,
    )
