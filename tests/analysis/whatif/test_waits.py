from itertools import pairwise

import polars as pl
import pytest

from cranny.analysis.whatif.waits import SIZES, waits


def test_waits_are_measured_over_jobs_and_sizes() -> None:
    jobs = pl.DataFrame(
        {"gpus": [1, 1, 7, 64], "wait_s": [0.0, 600.0, 601.0, 7200.0], "jct_s": [10.0, 20.0, 30.0, 40.0]}
    )
    found = waits(jobs)
    assert found.jobs == 4
    assert found.wait.mean_s == pytest.approx(8401 / 4)
    assert found.wait.p50_s == pytest.approx(600.5)
    assert found.wait.p95_s == pytest.approx(601 + 0.85 * 6599)
    assert found.jct.mean_s == 25.0
    assert (found.over_10_min, found.over_1_h) == (2, 1)
    assert found.mean_s_by_size == {"1": 300.0, "2-7": 601.0, "64+": 7200.0}


def test_every_size_belongs_to_one_class() -> None:
    classes = list(SIZES.values())
    assert classes[0][0] == 1
    assert all(most + 1 == least for (_, most), (least, _) in pairwise(classes))
