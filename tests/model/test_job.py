import math
from dataclasses import replace

import numpy as np
import pytest

from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.profile import ModelProfile, library


def test_a_job_takes_the_profile_of_its_model() -> None:
    job = Job(id="a", gpus=16, model="vgg16", collective="ring")
    assert job.profile is library()["vgg16"]
    assert job.dp == 16


def test_a_batch_chooses_among_the_measurements() -> None:
    assert Job(id="a", gpus=1, model="alexnet", batch=128).profile.batch == 128
    assert Job(id="a", gpus=1, model="alexnet").profile.batch == 512
    with pytest.raises(InputError, match=r"'alexnet' was not measured at batch 7; measured: 128, 512"):
        Job(id="a", gpus=1, model="alexnet", batch=7)


def test_a_model_may_be_a_profile_of_ones_own() -> None:
    mine = ModelProfile(name="mine", grad_bytes=1e9, iteration_ms=50)
    job = Job(id="a", gpus=2, model=mine)
    assert job.model == "mine"
    assert job.profile is mine
    assert replace(job, gpus=4).profile is mine
    with pytest.raises(InputError, match="its profile is for batch 1, not 2"):
        Job(id="a", gpus=2, model=mine, batch=2)


def test_a_changed_model_or_batch_changes_the_profile() -> None:
    job = Job(id="a", gpus=2, model="vgg16")
    assert replace(job, model="alexnet").profile.name == "alexnet"
    assert replace(replace(job, model="alexnet"), batch=128).profile.batch == 128


def test_an_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown model 'vgg-16'; did you mean 'vgg16'\?"):
        Job(id="a", gpus=1, model="vgg-16")


def test_an_unknown_collective_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean 'parameter-server'\?"):
        Job(id="a", gpus=1, collective="parameter_server")


def test_replicas_are_what_tensor_and_pipeline_parallelism_leave() -> None:
    assert Job(id="a", gpus=24, tp=4, pp=3).dp == 2


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"gpus": 0}, "gpus must be a whole number from 1 to 1000000, not 0"),
        ({"gpus": -3}, "gpus must be a whole number"),
        ({"gpus": 1.5}, "gpus must be a whole number"),
        ({"gpus": True}, "gpus must be a whole number"),
        ({"gpus": "4"}, "gpus must be a whole number"),
        ({"gpus": math.nan}, "gpus must be a whole number"),
        ({"gpus": 10**7}, "gpus must be a whole number"),
        ({"submit_s": -1.0}, "submit_s must be a number of seconds, zero or more, not -1.0"),
        ({"submit_s": math.nan}, "submit_s must be a number of seconds"),
        ({"duration_s": -0.5}, "duration_s must be a number of seconds"),
        ({"duration_s": math.inf}, "duration_s must be a number of seconds"),
        ({"duration_s": "5"}, "duration_s must be a number of seconds"),
        ({"tp": 0}, "tp must be a whole number"),
        ({"pp": -1}, "pp must be a whole number"),
        ({"tp": 1.5}, "tp must be a whole number"),
        ({"tp": True}, "tp must be a whole number"),
        ({"tp": 3}, "4 GPUs cannot be split into tp 3 x pp 1 groups"),
        ({"tp": 2, "collective": "hierarchical"}, "'hierarchical' cannot be combined with tp or pp"),
        ({"batch": 0}, "batch must be a whole number"),
        ({"gpu_type": 7}, "gpu_type must be a string, not 7"),
        ({"id": ""}, "a job's id must be a non-empty string, not ''"),
        ({"id": 5}, "a job's id must be a non-empty string, not 5"),
        ({"model": 5}, "model must be a name or a ModelProfile, not 5"),
    ],
)
def test_refuses_nonsense(fields: dict[str, object], problem: str) -> None:
    good: dict[str, object] = {"id": "a", "gpus": 4}
    with pytest.raises(InputError, match=problem):
        Job(**{**good, **fields})  # type: ignore[arg-type]


def test_numbers_of_other_kinds_become_plain_ones() -> None:
    job = Job(id="a", gpus=np.int64(4), submit_s=3, duration_s=np.float32(0.5), tp=2.0, pp=np.int8(1))  # type: ignore[arg-type]
    assert [type(value) for value in (job.gpus, job.submit_s, job.duration_s, job.tp, job.pp)] == [
        int,
        float,
        float,
        int,
        int,
    ]
    assert job == Job(id="a", gpus=4, submit_s=3.0, duration_s=0.5, tp=2)


def test_equal_jobs_are_one_in_a_set() -> None:
    assert len({Job(id="a", gpus=4), Job(id="a", gpus=4), Job(id="a", gpus=5)}) == 2
