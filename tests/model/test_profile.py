import json
from pathlib import Path
from typing import Any

import pytest

from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.profile import ModelProfile, library

MINE = {"models": {"mine": {"layers": 4, "measured": [{"batch": 8, "grad_bytes": 1e6, "iteration_ms": 10}]}}}


def write(folder: Path, content: object) -> Path:
    path = folder / "mine.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_library_has_21_models() -> None:
    assert len(library()) == len(list(library())) == 21
    assert "resnet50" in library()
    assert "resnet5000" not in library()


def test_every_profile_is_plausible() -> None:
    for profile in library().values():
        assert profile.gpu_type == "h200"
        assert profile.grad_bytes == 4 * profile.params
        parts_ms = profile.forward_ms + profile.backward_ms + profile.optimizer_ms
        assert profile.iteration_ms == pytest.approx(parts_ms, rel=0.05)
        assert sum(size for _, size in profile.gradient_buckets) == pytest.approx(profile.grad_bytes)
        assert [ready for ready, _ in profile.gradient_buckets] == sorted(
            ready for ready, _ in profile.gradient_buckets
        )
        assert profile.skew >= 1
        assert profile.activation_bytes >= 0
        assert profile.iteration_s == profile.iteration_ms / 1000


def test_a_name_stands_for_its_largest_batch() -> None:
    assert library()["alexnet"].batch == 512
    assert library().at("alexnet", 128).iteration_ms < library()["alexnet"].iteration_ms


def test_an_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown model 'resnet-50'; did you mean 'resnet50'\?"):
        library()["resnet-50"]
    with pytest.raises(InputError, match="unknown model 'zzz'; known: alexnet, bert-base"):
        library().at("zzz", 1)


def test_activations_are_what_is_left_of_memory_for_each_layer() -> None:
    profile = ModelProfile("m", 4e6, 1, params=1_000_000, peak_mem_mb=52, layers=4)
    assert profile.activation_bytes == 10e6
    assert ModelProfile("m", 4e6, 1, params=1_000_000).activation_bytes == 0


def test_skew_compares_the_largest_bucket_with_the_mean() -> None:
    assert ModelProfile("m", 4e6, 1, gradient_buckets=((1.0, 10), (2.0, 30), (3.0, 20))).skew == 1.5
    assert ModelProfile("m", 4e6, 1).skew == 1


def test_a_file_adds_models(tmp_path: Path) -> None:
    more = library().with_file(write(tmp_path, MINE))
    assert len(more) == 22
    assert len(library()) == 21
    assert more["mine"].layers == 4
    assert Job(id="a", gpus=2, model=more["mine"]).profile.grad_bytes == 1e6


def test_a_file_wins_where_names_repeat(tmp_path: Path) -> None:
    again = {"gpu_type": "t4", "models": {"vgg16": MINE["models"]["mine"]}}
    assert library().with_file(write(tmp_path, again))["vgg16"].gpu_type == "t4"


def row(**fields: Any) -> dict[str, Any]:
    good = {"batch": 8, "grad_bytes": 1e6, "iteration_ms": 10}
    return {"models": {"mine": {"measured": [{**good, **fields}]}}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", r"mine.json:1: not JSON: Expecting value"),
        ('{\n "models": }', r"mine.json:2: not JSON: Expecting value"),
        ("[" * 100_000, "mine.json: nested too deep"),
        ([], "mine.json: models: expected an object with one entry a model"),
        ({"models": []}, "models: expected an object"),
        ({"models": {"mine": 5}}, "models.mine.measured: expected a list"),
        ({"models": {"mine": {"measured": []}}}, "models.mine.measured: expected a list"),
        ({"models": {"mine": {"measured": [5]}}}, r"models.mine.measured\[0\]: expected an object, not 5"),
        ({"models": {"mine": {"measured": [{}]}}}, r"models.mine.measured\[0\].grad_bytes: missing"),
        (row(grad_byte=1), r"measured\[0\]: unknown field 'grad_byte'; did you mean 'grad_bytes'\?"),
        (row(grad_bytes=0), "grad_bytes must be a positive number, not 0"),
        (row(grad_bytes="many"), "grad_bytes must be a positive number, not 'many'"),
        (row(iteration_ms=True), "iteration_ms must be a positive number, not True"),
        (row(forward_ms=-1), "forward_ms must be a number, zero or more, not -1"),
        (row(peak_mem_mb=float("nan")), "peak_mem_mb must be a number, zero or more, not nan"),
        (row(batch=0), "batch must be a whole number"),
        (row(gradient_buckets=5), "gradient_buckets: expected a list of pairs, not 5"),
        (row(gradient_buckets=[[1]]), r"gradient_buckets\[0\] must be a pair of ms and bytes"),
        (row(gradient_buckets=[5]), r"gradient_buckets\[0\] must be a pair of ms and bytes"),
        (row(gradient_buckets=[[1, 0]]), r"gradient_buckets\[0\]: bytes must be a positive number"),
        (row(name="other"), "unknown field 'name'"),
    ],
)
def test_a_file_with_a_slip_says_where(tmp_path: Path, content: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as raised:
        library().with_file(write(tmp_path, content))
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.json: there is no such file"):
        library().with_file(tmp_path / "nowhere.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary.json: not a text file in UTF-8"):
        library().with_file(tmp_path / "binary.json")
