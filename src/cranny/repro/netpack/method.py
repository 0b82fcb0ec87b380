"""How the experiments were run, in sentences for the reader of the page."""

from collections.abc import Mapping, Sequence

from cranny.repro.netpack.study import Study
from cranny.repro.netpack.watch import Watched

SETUPS = (
    "Set-ups of the paper: simulator, 16 racks x 16 machines x 4 GPUs; testbed, 5 servers x 2 GPUs below one "
    "switch, here also simulated. Links of 100 Gbps, PAT 1 Tbps a switch, 1:1 unless said otherwise. Models: "
    "VGG-11, 16 and 19, AlexNet, ResNet-50 and 101, drawn by seed. Jobs exchange gradients through a "
    "parameter server with in-network aggregation (`ina`), and share links max-min fairly (`steady`)."
)
LOADS = (
    "Chosen by us, for the paper does not state it: Poisson and normal demand have a mean of 8 GPUs (testbed: "
    "3; normal: half the mean as deviation), lognormal durations (median 1 h, sigma 1) and Poisson arrivals "
    "at load 0.6 (testbed: 0.4). Load is GPU-time asked for, by GPUs and time from the first to the last "
    "arrival; since jobs on several machines take about twice as long, 0.6 fills the cluster."
)
QUEUE = (
    "Queue: NetPack's own order (`knapsack`: the set of waiting jobs that is worth most) for every policy, so "
    "that only placement differs."
)
EFFICIENCY = (
    "DE is the mean over jobs of duration / JCT: as the paper's numerator is the time on one GPU, and computation "
    "scales linearly here. Waiting counts."
)


def facts(study: Study | None, seconds: Mapping[int, float], watched: Sequence[Watched]) -> list[str]:
    """Say what was run, and what was assumed."""
    told = []
    if study is not None:
        seeds = (
            f"Seeds: {study.seeds}, with 95 % confidence intervals (Student's t; the paper shows standard "
            "deviations of ten runs). Ratios to NetPack are taken seed by seed. A policy is level with "
            "NetPack if the interval of the ratio contains 1."
        )
        told += [SETUPS, LOADS, _real(study), QUEUE, EFFICIENCY, seeds]
    if seconds:
        told.append("Fig. 10 is the measurement of `cranny bench netpack`, in CPU seconds of one core.")
    if watched:
        told.append("Fig. 15: three jobs of three workers on the testbed's servers, by a timetable of ours.")
    return told


def _real(study: Study) -> str:
    """Say what the real trace is."""
    squeezed = (
        "For the simulator 2,000 jobs with arrivals squeezed to ten times the cluster's GPUs (a few jobs of "
        "weeks hold most of the GPU-time, so that less would leave the cluster half empty); for the testbed "
        "400 jobs of at most a day and 10 GPUs at load 0.8."
    )
    if study.generated:
        return f"No folder of traces was given: the real trace is generated from statistics of Philly. {squeezed}"
    return (
        "Real trace: Microsoft's Philly from 2017-10-01 on, for each seed jobs in a row from another tenth of it. "
        f"{squeezed}"
    )
