"""What a network at a moment amounts to, in words and in a table of bottlenecks."""

from collections.abc import Sequence

from cranny.model.validate import counted
from cranny.network.steady.link_load import Bottleneck, JobRate, Load
from cranny.report.heatmap import flows, gbps, percent

JOBS_NAMED = 4


def summary(load: Load) -> str:
    """Say in two sentences how full the network is and whom that holds back."""
    if not load.jobs:
        return "No running job uses a link."
    links = len(load.cluster.parent) - 1
    back = [job for job in load.jobs if job.held_back]
    talking = "1 running job uses" if len(load.jobs) == 1 else f"{len(load.jobs):,} running jobs use"
    told = f"{talking} links; {len(load.full):,} of {counted(links, 'link')} are full"
    if not back:
        return f"{told}. Every job is as fast as it would be alone."
    share = sum(job.rate_gbps / job.alone_gbps for job in back) / len(back)
    slower = f"on average to {percent(share)} of their rate alone"
    holding = int((load.holds_back > 0).sum())
    some = "all" if holding == len(load.full) > 1 else f"{holding:,}"
    told = f"{told}, and {some} of these {'holds' if holding == 1 else 'hold'} jobs back."
    return f"{told} Sharing slows {counted(len(back), 'job')}: {slower}."


def worst(load: Load, top: int) -> Sequence[Bottleneck]:
    """Return the links that cost their jobs most, those that cost nothing left out."""
    return [each for each in load.bottlenecks if any(job.held_back for job in each.held)][:top]


def held(jobs: Sequence[JobRate]) -> str:
    """Name the slowest of some jobs, with their rates and what they would have alone."""
    named = [
        f"{job.job_id} at {gbps(job.rate_gbps)} Gbps (alone {gbps(job.alone_gbps)})" for job in jobs[:JOBS_NAMED]
    ]
    rest = len(jobs) - len(named)
    return ", ".join([*named, f"and {rest:,} more"] if rest else named)


def line(load: Load, each: Bottleneck) -> str:
    """Say everything about a bottleneck in one line."""
    link = each.link
    carried = f"{gbps(load.link_gbps[link])} of {gbps(load.cluster.uplink_gbps[link])} Gbps"
    users = f"{flows(float(load.link_flows[link]))} of {counted(len(each.jobs), 'job')}"
    return f"{load.cluster.link_name(link)}: {carried}, {users}; holds {held(each.held)}"
