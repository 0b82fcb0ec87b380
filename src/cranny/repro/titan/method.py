"""How the experiments were run, in sentences for the reader of the page."""

from collections.abc import Sequence

from cranny.repro.titan.study import Study
from cranny.repro.titan.testbed import Outcome
from cranny.repro.titan.values import ACME_ALL_JOBS, PAPER_JOBS

GENERATED = "No folder of traces was given: all jobs are generated from published statistics of these clusters."
REAL = (
    "The logs of Microsoft are real. Acme's is not at hand: its jobs are generated from its published statistics."
)
CLUSTER = (
    "Cluster: 64 racks x 8 machines x 8 GPUs, links of 100 Gbps. Collective: halving-doubling. Queue: first come, "
    "first served for every policy, since the paper places jobs as they arrive; Tiresias's own order is not used."
)
NETWORKS = (
    "Networks: with `instant` communication takes no time, which is what the paper's numbers of machines fit; "
    "with `isolated` each iteration takes its communication time on top, as the paper's text describes. Figs. 2 "
    "to 5 are compared with `instant` first, Figs. 6 and 7 with `isolated`: without it, profit mirrors machines."
)
PART = (
    "With `isolated`, jobs of 512 and more GPUs run for so long that the queue of the whole Acme trace never "
    "empties. There its first jobs stand for it, drawn anew for each seed."
)


def facts(study: Study | None, outcomes: Sequence[Outcome]) -> list[str]:
    """Say what was run, and what was assumed."""
    told = []
    if study is not None:
        counts = ", ".join(f"{work.label} {study.jobs(work.key):,}" for work in study.workloads)
        paper = (
            f"The paper names {PAPER_JOBS['itp']:,} jobs of Microsoft and {ACME_ALL_JOBS:,} of Acme, of which "
            f"{PAPER_JOBS['acme']:,} on GPUs; only GPU jobs are placed."
        )
        seeds = (
            f"Models are drawn by seed for every job, as in the paper. Seeds: {study.seeds}, with 95 % confidence "
            "intervals (Student's t). A value without an interval came out the same for every seed, or was run "
            "with one seed (elasticflow, hived and best-fit-mapped on the whole Acme trace). With `instant` "
            "nothing random enters where machines are chosen without regard to the model: there only traffic "
            "varies."
        )
        told += [
            f"Jobs: {counts}. {paper}",
            GENERATED if study.generated else REAL,
            CLUSTER,
            seeds,
            NETWORKS,
            PART,
        ]
    if outcomes:
        layouts = len({one.free for one in outcomes})
        told.append(
            "Testbed: 8 machines x 4 GPUs; three idle, five with 1 to 3 background jobs each, in all "
            f"{layouts} layouts that fit the paper's text. Communication time by our model at 100 Gbps. Chosen to "
            "fit the paper, and so not tested here: three idle machines (by Figs. 9(b) and 12), 512 as the batch "
            "of all workers (by HiveD's loss in Fig. 10(a)) and a GPU's speed (by Elasticflow's 4,422 images/s)."
        )
    return told
