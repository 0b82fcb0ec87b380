"""Whatever a file holds, reading it gives a trace that accounts for every row, or one clear line of error."""

import copy
import csv
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.model.errors import InputError
from cranny.traces.read import READERS, read_trace

SAMPLES = Path(__file__).parent / "samples"
OURS = (
    b"job_id,submit_s,gpus,duration_s,model,start_s,machines,tenant\n"
    b"a,0,8,3600,vgg16,1.5,1,red\nb,12.5,1,90,,,2,\nc,13,0,5,,,,\n"
)
LINES = {
    "acme": "seren.csv",
    "helios": "helios.csv",
    "pai": "pai_task_table.csv",
    "openb": "openb.csv",
    "elasticflow": "elasticflow.csv",
    "muri": "muri.csv",
    "tiresias": "tiresias.csv",
    "gavel": "gavel.trace",
    "pollux": "pollux.csv",
    "sacct": "sacct.txt",
    "pbs": "pbs.txt",
}
DOCUMENTS = {"philly": "philly.json", "kubernetes": "jobs.json", "prometheus": "prometheus.json"}
SEPARATORS = {"gavel": "\t", "sacct": "|", "pbs": ";"}
HEADERLESS = ("gavel", "pai", "pbs")

NASTY = st.sampled_from(
    [
        "", " ", "nan", "-1", "0", "1e300", "-1e300", "1e999", "9" * 400, "inf", "None", "null", "Unknown", "1.5",
        "2020-13-45 99:99:99", "9999-12-31 23:59:59", "0001-01-01T00:00:00", "-0001-01-01 00:00:00",
        "2020-01-01T00:00:00+99:99", "2020-01-01 00:00:00.9999999999Z", "99999999999-23:59:59", "gres/gpu=1e5",
        "gres/gpu=99999999999999999999", "gres/gpu:h100=2,gres/gpu:a=3", '"', "ä", "\0", "\ufeff", "🙂" * 9, "a/b",
    ]
) | st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 10)
    | st.sampled_from([1e300, float("nan"), 10**400, "\ud800"])
    | NASTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY, inner, max_size=3),
    max_leaves=8,
)
FUZZ = settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


def accounts_for(path: Path, rows: int | None, **options: Any) -> None:
    """Read a file: each of its rows must be in the trace or counted, unless one line says why not."""
    try:
        trace = read_trace(path, **options)
    except InputError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "\n" not in refusal
        assert str(path) in refusal
        return
    assert (trace.frame["submit_s"] >= 0).all()
    assert trace.frame["submit_s"].is_sorted()
    assert trace.frame["duration_s"].is_finite().all()
    assert trace.frame["job_id"].is_unique().all()
    if rows is not None:
        assert len(trace) + sum(trace.skipped.values()) == rows


def lines_in(content: bytes, *, headerless: bool) -> int | None:
    """Count the rows of a text table; None if it is no text."""
    try:
        lines = [line for line in content.decode("utf-8").split("\n") if line.strip("\ufeff \t\r")]
    except UnicodeDecodeError:
        return None
    return len(lines) if headerless else len(lines) - 1


def jobs_in(document: Any, name: str) -> int | None:
    """Count the jobs of a document, gathering the pods of one owner; None if it is no list of them."""
    if name == "philly":
        return len(document) if isinstance(document, list) else None
    if name == "prometheus":
        return None  # a job has many series
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        return None
    found: set[str] = set()
    for place, item in enumerate(items):
        kind = item.get("kind") if isinstance(item, dict) else None
        if kind not in ("Pod", "Job"):
            found.add(f"neither {place}")
            continue
        metadata = item.get("metadata") if isinstance(item.get("metadata"), dict) else {}
        owners = metadata.get("ownerReferences") if kind == "Pod" else None
        if owners:
            return None  # gathered by what may be any rubbish
        found.add(f"{kind} {metadata.get('namespace')!r} {metadata.get('name')!r}")
    return len(found)


@pytest.mark.parametrize("name", LINES)
@FUZZ
@given(data=st.data())
def test_wrong_fields_are_counted_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    separator = SEPARATORS.get(name, ",")
    content = (SAMPLES / LINES[name]).read_text(encoding="utf-8")
    rows = [line.split(separator) for line in content.splitlines()]
    first = 0 if name in HEADERLESS else 1
    for _ in range(data.draw(st.integers(1, 6))):
        row = rows[data.draw(st.integers(first, len(rows) - 1))]
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(NASTY)
    head, body = rows[:first], data.draw(st.permutations(rows[first:]))
    if data.draw(st.booleans()):  # a column more
        head = [[*row, "another"] for row in head]
        body = [[*row, data.draw(NASTY)] for row in body]
    end = data.draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    changed = end.join(separator.join(row) for row in [*head, *body]).encode("utf-8")
    path = tmp_path / "log"
    path.write_bytes(changed)
    expected = lines_in(changed, headerless=name in HEADERLESS)
    accounts_for(path, expected, format=name, strict=data.draw(st.sampled_from([None, True, False])))


@pytest.mark.parametrize("name", [*LINES, *DOCUMENTS, "cranny-csv"])
@FUZZ
@given(data=st.data())
def test_broken_files_are_counted_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    files = {**LINES, **DOCUMENTS}
    whole = (SAMPLES / files[name]).read_bytes() if name in files else OURS
    how = data.draw(st.sampled_from(["cut", "utf-16", "latin-1", "bytes", "binary"]))
    if how == "cut":
        content = whole[: data.draw(st.integers(0, len(whole)))]
    elif how == "bytes":
        spot = data.draw(st.integers(0, len(whole)))
        content = whole[:spot] + data.draw(st.binary(min_size=1, max_size=8)) + whole[spot:]
    elif how == "binary":
        content = data.draw(st.binary(max_size=200))
    else:
        content = whole.decode("utf-8").replace("0", "ä").encode(how)
    path = tmp_path / "log"
    path.write_bytes(content)
    rows = lines_in(content, headerless=name in HEADERLESS) if name in LINES else None
    strict = data.draw(st.sampled_from([None, True, False]))
    accounts_for(path, rows, format=name, strict=strict)
    accounts_for(path, None, strict=strict)


@pytest.mark.parametrize("name", DOCUMENTS)
@FUZZ
@given(data=st.data())
def test_wrong_values_in_json_are_counted_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    document = copy.deepcopy(json.loads((SAMPLES / DOCUMENTS[name]).read_text(encoding="utf-8")))
    for _ in range(data.draw(st.integers(1, 4))):
        place: Any = document
        for _ in range(data.draw(st.integers(0, 8))):  # walk down a random path
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            inside = [key for key in keys if isinstance(place[key], dict | list) and place[key]]
            if not inside:
                break
            place = place[data.draw(st.sampled_from(inside))]
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
        place[key] = data.draw(VALUES)
    path = tmp_path / "log.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    strict = data.draw(st.sampled_from([None, True, False]))
    accounts_for(path, jobs_in(document, name), format=name, strict=strict)
    if READERS[name].by_attempt is not None:
        accounts_for(path, None, format=name, strict=strict, attempts=True)


@FUZZ
@given(fields=st.lists(st.lists(NASTY, min_size=9, max_size=9), min_size=1, max_size=6), strict=st.booleans())
def test_our_own_csv_counts_or_refuses(tmp_path: Path, *, fields: list[list[str]], strict: bool) -> None:
    out = io.StringIO()
    header = ["job_id", "submit_s", "gpus", "duration_s", "tp", "start_s", "attempts", "user", "more"]
    csv.writer(out).writerows([header, ["a", "0", "1", "1", *[""] * 5], *fields])
    path = tmp_path / "ours.csv"
    path.write_text(out.getvalue(), encoding="utf-8", newline="")
    accounts_for(path, 1 + sum(any(row) for row in fields), strict=strict)


@FUZZ
@given(
    numbers=st.lists(st.tuples(*[st.none() | st.floats()] * 4), min_size=1, max_size=6),
    cut=st.none() | st.integers(0, 2000),
    strict=st.booleans(),
)
def test_our_own_parquet_counts_or_refuses(
    tmp_path: Path, *, numbers: list[tuple[float | None, ...]], cut: int | None, strict: bool
) -> None:
    columns = [*zip(*numbers, strict=True)]
    frame = pl.DataFrame(
        {
            "job_id": [str(row) for row in range(len(numbers))],
            "submit_s": columns[0],
            "gpus": columns[1],
            "duration_s": columns[2],
            "nodes": columns[3],
        },
        schema_overrides=dict.fromkeys(("submit_s", "gpus", "duration_s", "nodes"), pl.Float64),
    )
    path = tmp_path / "ours.parquet"
    frame.write_parquet(path)
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])
    accounts_for(path, len(numbers), strict=strict)


def test_every_format_is_fuzzed() -> None:
    assert {*LINES, *DOCUMENTS, "cranny-csv", "cranny-parquet"} == set(READERS)
