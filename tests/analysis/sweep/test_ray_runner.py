"""A sweep on a real Ray cluster of three machines, on the loopback of a network of its own."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.analysis.sweep.folders import files_of

from cranny.analysis.sweep.run_sweep import run_sweep
from cranny.analysis.sweep.sweep_file import read_sweep

APART = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
SWEEP = """
name: on-ray
traces: [itp, own.csv]
jobs: 3000
clusters: [16x8x8]
loads: [0.8]
policies: [best-fit, consolidate-idle]
seeds: 2
"""


def can_run_apart() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run([*APART, "true"], check=False).returncode


@pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed")
@pytest.mark.skipif(not can_run_apart(), reason="this user may not make a network of its own")
def test_a_sweep_on_ray_gives_the_same_bytes_though_a_machine_dies(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP, encoding="utf-8")
    (tmp_path / "own.csv").write_text(
        "job_id,submit_s,gpus,duration_s\n"
        + "".join(f"j{n},{n * 60},{n % 13 + 1},{n % 700}\n" for n in range(3000)),
        encoding="utf-8",
    )
    sweep = read_sweep(file)
    run_sweep(sweep, tmp_path / "here", processes=1)
    script = Path(__file__).with_name("ray_cluster.py")
    ran = subprocess.run(
        [*APART, sys.executable, str(script), str(file), str(tmp_path / "ray")],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["code"] == 0, told
    assert told["lost"] == 1, "the machine was busy when it was taken away"
    assert 0 < told["finished"] < len(sweep.cells) - 1
    counted = {name: json.loads(told["out"])[name] for name in ("cells", "run", "taken_over", "failed")}
    assert counted == {"cells": len(sweep.cells), "run": len(sweep.cells), "taken_over": 0, "failed": 0}
    assert files_of(tmp_path / "ray") == files_of(tmp_path / "here")
