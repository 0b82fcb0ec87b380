import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.model.collective import COLLECTIVES
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.profile import library
from cranny.traces import trace_jobs as jobs_module
from cranny.traces.read import read_trace
from cranny.traces.trace import NOT_DRAWN, Trace


def small(**columns: list[object]) -> Trace:
    return Trace.from_frame(
        pl.DataFrame(
            {
                "job_id": ["a", "b", "c"],
                "submit_s": [0.0, 10.0, 20.0],
                "gpus": [1, 2, 4],
                "duration_s": [5.0, 6.0, 7.0],
                **columns,
            }
        ),
        name="small",
    )


def test_jobs_come_in_order_with_their_columns() -> None:
    trace = small(
        model=["vgg16", "gpt2", "vgg16"],
        collective=["ring", None, "tree"],
        tenant=["red", None, "blue"],
        gpu_type=["h200", None, None],
        tp=[None, 2, 2],
    )
    profiles = library()
    assert list(trace.jobs(collective="all-to-all")) == [
        Job("a", 1, "vgg16", "ring", 0.0, 5.0, tenant="red", gpu_type="h200"),
        Job("b", 2, "gpt2", "all-to-all", 10.0, 6.0, tp=2),
        Job("c", 4, "vgg16", "tree", 20.0, 7.0, tp=2, tenant="blue"),
    ]
    assert [job.profile for job in trace.jobs()] == [profiles[name] for name in ("vgg16", "gpt2", "vgg16")]


def test_jobs_without_a_model_get_one_by_seed_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"job_id": [f"j{k}" for k in range(2000)]}).with_columns(
        submit_s=pl.lit(0.0), gpus=pl.lit(1, pl.Int32), duration_s=pl.lit(1.0)
    )
    trace = Trace("many", frame)
    models = [job.model for job in trace.jobs(seed=3)]
    assert set(models) == set(library()) - NOT_DRAWN
    monkeypatch.setattr(jobs_module, "CHUNK", 7)
    assert [job.model for job in trace.jobs(seed=3)] == models
    assert [job.model for job in trace.jobs(seed=4)] != models
    jobs = trace.jobs(seed=3)
    assert [jobs[at].model for at in range(len(jobs))] == models == [job.model for job in jobs.shared()]


def test_naming_a_model_leaves_the_draws_of_other_jobs_alone() -> None:
    drawn = [job.model for job in small().jobs(seed=1)]
    named = [job.model for job in small(model=[None, "dlrm", None]).jobs(seed=1)]
    assert named == [drawn[0], "dlrm", drawn[2]]


def test_models_are_drawn_from_those_asked_for() -> None:
    assert {job.model for job in small().jobs(models=["gpt2"])} == {"gpt2"}
    with pytest.raises(InputError, match="unknown model 'gpt9'"):
        small().jobs(models=["gpt9"])
    with pytest.raises(InputError, match="name at least one model"):
        small().jobs(models=[])


def test_rejects_an_unknown_collective_before_the_first_job() -> None:
    with pytest.raises(InputError, match="unknown collective 'rings'; did you mean 'ring'"):
        small().jobs(collective="rings")


def test_rejects_a_negative_seed() -> None:
    with pytest.raises(InputError, match="seed must be a whole number"):
        small().jobs(seed=-1)


def test_slices_by_time_and_count() -> None:
    trace = small()
    assert trace.slice(start_s=10).frame["job_id"].to_list() == ["b", "c"]
    assert trace.slice(end_s=20).frame["job_id"].to_list() == ["a", "b"]
    assert trace.slice(skip=1, count=1).frame["job_id"].to_list() == ["b"]
    assert trace.slice(start_s=5, from_zero=True).frame["submit_s"].to_list() == [0.0, 10.0]
    with pytest.raises(InputError, match="small: no jobs in that slice"):
        trace.slice(start_s=21)


def test_filters_by_the_values_of_columns() -> None:
    trace = small(cluster=["x", "y", "x"])
    assert trace.where(cluster="x").frame["job_id"].to_list() == ["a", "c"]
    assert trace.where(cluster="x", gpus=4).frame["job_id"].to_list() == ["c"]
    with pytest.raises(InputError, match="no jobs with cluster 'z'"):
        trace.where(cluster="z")
    with pytest.raises(InputError, match="unknown column 'clutser'; did you mean 'cluster'"):
        trace.where(clutser="x")


def test_a_table_of_ones_own_is_checked() -> None:
    with pytest.raises(InputError, match="small: row 2: gpus: must be a whole number"):
        small(gpus=[1.0, 2.5, 1.0])
    with pytest.raises(InputError, match="own: missing column duration_s"):
        Trace("own", pl.DataFrame(schema={"job_id": pl.String, "submit_s": pl.Float64, "gpus": pl.Int32}))
    with pytest.raises(InputError, match="small: gpus: must be Int32, not Int64"):
        Trace("small", small().frame.with_columns(pl.col("gpus").cast(pl.Int64)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV"])
def test_what_is_written_reads_back_equal(tmp_path: Path, suffix: str) -> None:
    trace = small(tenant=["a,b", 'say "x"', "two\nlines"], model=["vgg16", None, None])
    trace.write(tmp_path / f"small{suffix}")
    again = read_trace(tmp_path / f"small{suffix}")
    assert again.name == "small"
    assert again.frame.equals(trace.frame)


def test_writing_says_what_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"jobs.txt: a trace's name must end in .csv or .parquet"):
        small().write(tmp_path / "jobs.txt")
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        small().write(tmp_path / "none" / "jobs.csv")
    with pytest.raises(InputError, match="cannot be written: "):
        small(nested=[[1], [2], [3]]).write(tmp_path / "jobs.csv")


seconds = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
# Surrogates cannot be written as UTF-8; our format keeps no spaces around a tenant.
text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
tidy = text.map(str.strip).filter(bool)


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    ids = draw(st.lists(text, min_size=1, max_size=20, unique=True))

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(values, min_size=len(ids), max_size=len(ids)))

    schema = {"submit_s": pl.Float64, "gpus": pl.Int64, "duration_s": pl.Float64, "tp": pl.Int64}
    return pl.DataFrame(
        {
            "job_id": ids,
            "submit_s": column(seconds),
            "gpus": column(st.integers(1, 1_000_000)),
            "duration_s": column(seconds),
            "tp": column(st.sampled_from([None, 1])),
            "model": column(st.sampled_from([None, *library()])),
            "collective": column(st.sampled_from([None, *COLLECTIVES])),
            "tenant": column(st.none() | tidy),
        },
        schema_overrides={**schema, "model": pl.String, "collective": pl.String, "tenant": pl.String},
    )


@settings(max_examples=examples(150))
@given(frames())
def test_any_trace_survives_csv_and_parquet(frame: pl.DataFrame) -> None:
    trace = Trace.from_frame(frame)
    assert trace.frame["submit_s"].is_sorted()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("t.csv", "t.parquet"):
            trace.write(Path(folder) / name)
            again = read_trace(Path(folder) / name)
            assert again.frame.equals(trace.frame)
            assert [job.id for job in again.jobs()] == trace.frame["job_id"].to_list()
