"""A trace of millions of rows is read, not fallen over."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROWS = 4_000_000
MOST_BYTES = 400 * ROWS  # so that ten million fit into 4 GB

WRITE = """
import sys
import polars as pl

row = pl.int_range(int(sys.argv[2]), eager=True)
frame = pl.DataFrame({"job_id": row, "submit_s": row, "gpus": row % 8 + 1, "duration_s": row % 1000})
frame.write_csv(sys.argv[1])
"""


def test_millions_of_rows_are_inspected_within_400_bytes_each(tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    try:
        subprocess.run([sys.executable, "-c", WRITE, file, str(ROWS)], check=True)
        with (tmp_path / "told.json").open("wb") as out:
            words = [sys.executable, "-m", "cranny.cli", "traces", "inspect", str(file), "--json"]
            process = subprocess.Popen(words, stdout=out)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        file.unlink(missing_ok=True)
    assert process.returncode == 0
    told = json.loads((tmp_path / "told.json").read_text(encoding="utf-8"))
    assert told["jobs"] == ROWS
    assert told["largest_job_gpus"] == 8
    assert told["mean_gpus"] == 4.5
    kilobyte = 1 if sys.platform == "darwin" else 1024  # Linux counts in kilobytes
    assert used.ru_maxrss * kilobyte < MOST_BYTES
