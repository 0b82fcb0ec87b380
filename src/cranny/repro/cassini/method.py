"""How the experiments were run, in sentences for the reader of the page."""

from cranny.repro.cassini.links import JITTER
from cranny.repro.cassini.setup import ITERATIONS, LANGUAGE, LINK_GBPS, WORKERS, testbed
from cranny.repro.cassini.shapes import WORKERS as ON_LINK
from cranny.repro.cassini.study import POISSON_JOBS, Study


def facts(study: Study | None, *, links: bool, seeds: int) -> list[str]:
    """Say what was run, and what was assumed."""
    profiles = (
        "Profiles were measured on an H200 with bf16; the paper used A100s, larger batches, and links of "
        f"{LINK_GBPS:g} Gbps, as here. As measured, jobs talk for 60 to 80 % of an iteration and hardly ever "
        "fit on a link together. So computing is scaled in proportion to the paper's batches, and of language "
        f"models by {LANGUAGE:g} more, which was set by the score 0.8 of two RoBERTa in Table 2."
    )
    marks = "Packets with ECN marks are approximated by gigabits offered above the capacity of links."
    told = [profiles, marks]
    if links:
        told.append(
            f"Jobs on one link: {100 * JITTER:g} % jitter of computing times if not said otherwise, and "
            f"{ON_LINK} workers a job in Table 2. Without shifts jobs start at random, and in Fig. 2 together. "
            "With shifts they are held to their beat if that costs none of them more than 5 %. "
            f"{seeds} seeds, 95 % confidence intervals (Student's t)."
        )
    if study is not None:
        cluster = (
            f"Cluster: {testbed().describe()}, links of {LINK_GBPS:g} Gbps, one of them above each pair of "
            "servers, or above four; six servers of two GPUs for Fig. 16. Network: phases, without jitter."
        )
        traces = (
            f"Traces: {POISSON_JOBS} jobs at a load of 90 % (Poisson), or jobs that fill the cluster and another "
            f"set after a minute (dynamic). A job has {WORKERS[0]} to {WORKERS[1]} workers at first and "
            f"{ITERATIONS[0]} to {ITERATIONS[1]} iterations, as in Sec. 5.1. {study.seeds} seeds; gains are taken "
            "seed by seed."
        )
        told += [cluster, traces]
    return told
