"""The queue order srtf against Tiresias's `shortest`, job by job."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import shortest

import cranny


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 2, 7]), st.integers(1, 8), st.integers(1, 30)), min_size=1, max_size=20
    )
)
def test_srtf_runs_the_jobs_that_tiresias_would(rows: list[tuple[int, int, int]]) -> None:
    now_s, jobs = 0, []
    for number, (gap_s, gpus, duration_s) in enumerate(rows):
        now_s += gap_s
        jobs.append(cranny.Job(f"{number:02}", gpus, "resnet50", submit_s=now_s, duration_s=duration_s))
    result = cranny.simulate(cranny.Cluster.single_rack(1, 8), jobs, "best-fit", order="srtf")
    found = result.jobs.select("job_id", "start_s", "finish_s", "restarts").iter_rows()
    assert {job_id: tuple(times) for job_id, *times in found} == shortest.replay(jobs, 8)
