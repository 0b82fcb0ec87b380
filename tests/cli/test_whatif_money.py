"""What `cranny what-if` says about money, on logs whose numbers were worked out by hand, and how it prints it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.cli.conftest import Run

from cranny.cli.console import out

HEAD = "JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList|Partition|User"
DAY = "2025-03-03T"


def row(job: int, start: str, end: str, tres: str, machine: str, submit: str = "") -> str:
    times = "|".join(f"{DAY}{each}:00" for each in (submit or start, start, end))
    return f"{job}|{times}|COMPLETED|{tres}|1|{machine}|gpu|user{job % 2}"


# Twenty machines of 8 GPUs, ten hours. The scheduler spread 12 jobs of two GPUs over 12 machines; one ended after
# four hours, so 8 machines were idle all the time and one for six hours of ten: 8.6 were idle anyway. Packed, the
# jobs take three machines, and 17 are idle. At $2.50 a GPU-hour a machine costs $480 a day: 17 of them are $8,160,
# of which 8.6, $4,128, were idle anyway. What packing saves is $4,032.
SPREAD = "\n".join(
    [
        HEAD,
        *(row(at, "00:00", "10:00", "gres/gpu=2", f"n{at:02}") for at in range(1, 12)),
        row(12, "00:00", "04:00", "gres/gpu=2", "n12"),
        row(13, "10:00", "10:01", "gres/gpu=2", "n01"),
    ]
)
TWENTY = 'racks: [{name: r, machines: [{names: "n[01-20]", gpus: 8}]}]\n'


@pytest.fixture
def spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text(SPREAD, encoding="utf-8")
    Path("cluster.yaml").write_text(TWENTY, encoding="utf-8")
    return ("what-if", "log.txt", "--cluster", "cluster.yaml", "--policies", "best-fit", "--processes", 1)


def test_machines_that_were_idle_anyway_are_not_saved(run: Run, spread: tuple[object, ...]) -> None:
    told = run(*spread, "--no-search", "--price-per-gpu-hour", 2.5, "--json").json
    was, best_fit = told["cases"]
    assert was["machines"]["off"] == pytest.approx(8.6)
    assert best_fit["machines"]["off"] == pytest.approx(17.0)
    assert best_fit["money"]["off_a_day"] == pytest.approx(8160.0)
    assert best_fit["money"]["saved_a_day"] == pytest.approx(4032.0)
    shown = " ".join(run(*spread, "--no-search", "--price-per-gpu-hour", 2.5).out.split())
    assert "As it was, 8.6 of 20 machines could have been off (idle for 15 min or longer)." in shown
    assert "it would have been 17, which saves $4,032 a day at $2.50 per GPU-hour." in shown
    assert "saves $8,160" not in shown


def test_prices_of_a_file_are_those_of_every_number(run: Run, spread: tuple[object, ...]) -> None:
    """Machine n12 is idle for half an hour before one more job, which does not pay for a boot of an hour."""
    again = row(14, "04:30", "04:36", "gres/gpu=2", "n12")
    Path("log.txt").write_text(f"{SPREAD}\n{again}", encoding="utf-8")
    Path("prices.yaml").write_text("per_gpu_hour: 5\nboot_s: 3600\nboot_cost: 24\n", encoding="utf-8")
    priced = (*spread, "--prices", "prices.yaml")
    told = run(*priced, "--json").json
    was, best_fit = told["cases"]
    # A machine costs $40 an hour and $960 a day, over ten hours. Eight are idle all the time, n12 from 4:36 on.
    assert was["money"]["off"] == pytest.approx(40 * 85.4)
    assert best_fit["money"]["off"] == pytest.approx(40 * 170.0)
    assert best_fit["money"]["saved_a_day"] == pytest.approx(960 * (17 - 8.54))
    of_details = told["details"]["money"]["best-fit"]["saved_against_as_it_was"]
    assert of_details["a_day"] == pytest.approx(best_fit["money"]["saved_a_day"])
    assert (told["price_per_gpu_hour"], told["details"]["prices"]) == (None, "prices.yaml")
    shown = " ".join(run(*priced).out.split())
    assert "As it was, 8.5 of 20 machines could have been off (idle long enough to pay for a boot)." in shown
    assert "it would have been 17, which saves $8,122 a day at the prices of prices.yaml." in shown
    assert re.search(r"as it was \d\S+ \S+ \S+ 85.4 8.5 ", shown)  # hours used, idle and off, and machines off
    removed = told["search"][0]["removal"]["machines"]
    assert removed > 1
    assert f"With best-fit {removed} machines could be removed" in shown
    assert f"(they cost ${960 * removed:,} a day)" in shown
    assert "Boots take the time and money that the prices say." in shown
    assert "A boot takes no time." not in shown
    assert "A boot takes no time." in " ".join(run(*spread, "--no-search").out.split())


def test_a_page_has_nothing_at_a_price_that_is_not_paid(run: Run, spread: tuple[object, ...]) -> None:
    Path("prices.yaml").write_text("per_gpu_hour: 5\n", encoding="utf-8")
    for words, there in (((), True), (("--prices", "prices.yaml"), False)):
        page = Path("page.html")
        assert run(*spread, "--no-search", "--report", page, *words).code == 0
        text = page.read_text(encoding="utf-8")
        assert ("<dt>price per GPU-hour</dt>" in text) is there
        assert ('data-chart="profit_rate"' in text) is there


def test_a_price_for_a_type_that_can_be_two_is_one_line(run: Run, spread: tuple[object, ...]) -> None:
    Path("cluster.yaml").write_text(TWENTY.replace("gpus: 8", "gpus: 8, gpu_type: a100"), encoding="utf-8")
    Path("prices.yaml").write_text("types: {a100-40gb: {boot_s: 1}, a100-80gb: {boot_s: 2}}\n", encoding="utf-8")
    shown = run(*spread, "--prices", "prices.yaml")
    assert (shown.code, shown.out) == (2, "")
    assert "prices.yaml: types: 'a100' of the cluster can be 'a100-40gb' or 'a100-80gb'" in shown.err
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_hold_what_json_says(run: Run, spread: tuple[object, ...], tmp_path: Path, kind: str) -> None:
    told = run(*spread, "--no-search", f"--{kind}", tmp_path / "out", "--json").json
    read = pl.read_csv if kind == "csv" else pl.read_parquet
    money = read(tmp_path / "out" / f"money.{kind}")
    best_fit = told["details"]["money"]["best-fit"]["saved_against_as_it_was"]
    assert money.filter(pl.col("case") == "best-fit")["saved_a_day"].item() == pytest.approx(best_fit["a_day"])
    assert money.filter(pl.col("case") == "best-fit")["credited_a_day"].item() is None
    cases = read(tmp_path / "out" / f"cases.{kind}")
    assert cases["money_saved_a_day"].to_list()[1] == pytest.approx(best_fit["a_day"])
    differences = read(tmp_path / "out" / f"wait_differences.{kind}")
    assert differences.select("case", "than").rows() == [("as it was", "best-fit"), ("best-fit", "as it was")]


NUMBER = re.compile(r"-?\$?\d[\d,.]*\d|\d")


def numbers(text: str) -> set[str]:
    return set(NUMBER.findall(text))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_number_is_cut_on_a_narrow_terminal(
    run: Run, spread: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    command = (*spread[:-3], "best-fit,titan,gpu-balance", *spread[-2:], "--price-per-gpu-hour", 25)
    monkeypatch.setattr(out, "width", 1000)
    wide = run(*command).out
    monkeypatch.setattr(out, "width", width)
    narrow = run(*command).out
    assert max(map(len, narrow.splitlines())) <= width < max(map(len, wide.splitlines()))
    assert "$40,320" in wide
    assert numbers(narrow) == numbers(wide)


def cranny(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a program, whose output is piped."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "cranny.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**kept, **environment})


def test_output_is_wide_when_piped(spread: tuple[object, ...]) -> None:
    done = cranny(*spread, "--no-search")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) > 120
    narrow = cranny(*spread, "--no-search", COLUMNS="80")
    assert max(map(len, narrow.stdout.splitlines())) <= 80
    assert numbers(narrow.stdout) == numbers(done.stdout)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_library_that_is_not_installed_is_one_line(
    spread: tuple[object, ...], tmp_path: Path, processes: int
) -> None:
    """The policy `exact` needs OR-tools; a package of that name that cannot be imported stands in its place."""
    missing = tmp_path / "missing" / "ortools"
    missing.mkdir(parents=True)
    failing = "raise ModuleNotFoundError(\"No module named 'ortools'\", name='ortools')\n"
    (missing / "__init__.py").write_text(failing, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(missing.parent), os.environ.get("PYTHONPATH")]))
    command = (*spread[:-3], "exact,best-fit", "--processes", processes)
    done = cranny(*command, "--no-search", PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stderr.endswith("needs 'ortools': pip install 'cranny[exact]'\n")
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


# 25 jobs, 18 of them (72 %) on GPUs that the log calls A100 and the cluster a100.
TYPED = "\n".join(
    [
        HEAD,
        *(row(at, f"{at:02}:00", f"{at:02}:30", "gres/gpu=1,gres/gpu:A100=1", "n1") for at in range(18)),
        *(
            row(at, f"{at - 10:02}:00", f"{at - 10:02}:30", "gres/gpu=1,gres/gpu:V100=1", "n2")
            for at in range(18, 25)
        ),
    ]
)
OF_TYPES = (
    "racks: [{name: r, machines: [{names: n1, gpus: 4, gpu_type: a100}, {names: n2, gpus: 4, gpu_type: TYPE}]}]\n"
)


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text(TYPED, encoding="utf-8")
    return ("what-if", "log.txt", "--cluster", "cluster.yaml", "--policies", "best-fit", "--no-search")


def test_types_are_matched_without_case_and_by_alias_and_no_job_is_dropped(
    run: Run, typed: tuple[object, ...]
) -> None:
    Path("cluster.yaml").write_text(OF_TYPES.replace("TYPE", "Tesla-V100-SXM2-32GB"), encoding="utf-8")
    told = run(*typed, "--json").json
    assert [case["waits"]["jobs"] for case in told["cases"]] == [25, 25]
    assert [case["jobs_skipped"] for case in told["cases"]] == [0, 0]
    assert not any("type" in line for line in told["warnings"])
    by_type = {each["group"]: each["jobs"] for each in told["details"]["groups"] if each["by"] == "gpu_type"}
    assert by_type == {"a100": 18, "Tesla-V100-SXM2-32GB": 7}


@pytest.mark.parametrize(("kind", "hint"), [("a100", "which has a100"), ("v100-16gb", "")])
def test_a_type_that_the_cluster_does_not_have_is_an_error(
    run: Run, typed: tuple[object, ...], kind: str, hint: str
) -> None:
    Path("cluster.yaml").write_text(OF_TYPES.replace("TYPE", kind), encoding="utf-8")
    Path("log.txt").write_text(TYPED.replace("V100", "V100-32GB"), encoding="utf-8")
    shown = run(*typed)
    assert (shown.code, shown.out) == (2, "")
    assert "'V100-32GB' is not in the cluster" in shown.err.replace("v100-32gb", "V100-32GB")
    assert hint or "did you mean 'v100-16gb'?" in shown.err
    assert hint in shown.err
    assert "(7 jobs)" in shown.err
    assert "--skip-unknown-types" in shown.err
    assert len(shown.err.splitlines()) == 1
