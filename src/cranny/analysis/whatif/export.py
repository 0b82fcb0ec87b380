"""The answer as tables for other programs, in CSV or Parquet files, and the schema of its JSON."""

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from cranny.analysis.whatif.groups import case_jobs
from cranny.analysis.whatif.schema_name import SCHEMA
from cranny.model.errors import InputError
from cranny.model.validate import one_of

if TYPE_CHECKING:
    from cranny.analysis.whatif.answer import WhatIfAnswer

KINDS = ("csv", "parquet")
JOB_COLUMNS = ("job_id", "gpus", "submit_s", "start_s", "finish_s", "wait_s", "jct_s")


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of `--json`."""
    text = resources.files("cranny.analysis.whatif").joinpath("what_if_schema.json").read_text(encoding="utf-8")
    made: dict[str, Any] = json.loads(text)
    return made


def export_tables(answer: "WhatIfAnswer") -> dict[str, pl.DataFrame]:
    """Return the tables by name: cases, jobs, and those of the details."""
    cases = [_flat(case) for case in answer.facts()["cases"]]
    jobs = [
        case_jobs(result).select(pl.lit(str(result.settings["policy"])).alias("case"), *JOB_COLUMNS)
        for result in answer.results
    ]
    made = {"cases": pl.DataFrame(cases, infer_schema_length=None), "jobs": pl.concat(jobs)}
    found = answer.details
    frames = {"groups": found.groups, "changes": found.changes, "problem_jobs": found.problems}
    frames |= {"wait_differences": found.wait_frame()}
    if found.credited.height:
        frames |= {"credited": found.credited}
    return {**made, "money": found.money_frame(), **frames}


def write_tables(answer: "WhatIfAnswer", folder: str | Path, kind: str) -> list[Path]:
    """Write a file for each table to a folder, and the JSON beside them; return the files."""
    one_of(kind, KINDS, "kind")
    folder = Path(folder)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in export_tables(answer).items():
            path = folder / f"{name}.{kind}"
            if kind == "csv":
                frame.write_csv(path)
            else:
                frame.write_parquet(path)
            written.append(path)
        facts = folder / "what-if.json"
        facts.write_text(json.dumps(answer.facts(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return [*written, facts]


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested values into columns: `waits.wait.mean_s` is `waits_wait_mean_s`."""
    found: dict[str, Any] = {}
    for key, entry in value.items():
        if isinstance(entry, dict):
            found |= _flat(entry, f"{prefix}{key}_")
        else:
            found[f"{prefix}{key}"] = entry
    return found


__all__ = ["SCHEMA", "export_tables", "json_schema", "write_tables"]
