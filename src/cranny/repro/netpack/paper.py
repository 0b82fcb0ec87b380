"""NetPack's paper as data: the numbers that its text states, and how its figures are rebuilt here.

B. Zhao et al., "Training Job Placement in Clusters with Statistical In-Network Aggregation", ASPLOS 2024, Sec. 6.
Its figures give a bar for each baseline, but the text has only ranges and averages over them. A reduction is
1 - JCT of NetPack / JCT of the baseline.
"""

from collections.abc import Mapping
from dataclasses import dataclass

NETPACK = "netpack"
# Policies of the paper, and its names for them; `comb` is in one figure only.
PAPER_NAMES = {
    "netpack": "NetPack",
    "gpu-balance": "GB",
    "flow-balance": "FB",
    "least-fragmentation": "LF",
    "optimus": "Optimus",
    "tetris": "Tetris",
    "comb": "Comb",
}
RIVALS = ("gpu-balance", "flow-balance", "least-fragmentation", "optimus", "tetris")
COMB = "comb"


@dataclass(frozen=True, slots=True)
class PaperStatement:
    """What the text states of one figure, and the numbers in it as shares or factors."""

    claim: str
    text: str
    numbers: Mapping[str, float]


PAPER = {
    "7": PaperStatement(
        "NetPack has the lowest mean JCT in every experiment",
        "13 to 45 % lower than baselines on the testbed with the real trace, up to 78 % in simulation (Sec. 6.2)",
        {"testbed_least": 0.13, "testbed_most": 0.45, "simulator_most": 0.78},
    ),
    "8": PaperStatement(
        "NetPack has the highest distribution efficiency in every experiment",
        "13 to 46 % higher on the testbed with the real trace, up to 2.4 times in simulation (Sec. 6.2)",
        {"testbed_least": 1.13, "testbed_most": 1.46, "simulator_most": 2.4},
    ),
    "9": PaperStatement(
        "NetPack is ahead from 100 to 10,000 servers",
        "31 % lower JCT on average (Sec. 6.2)",
        {"mean": 0.31},
    ),
    "10": PaperStatement(
        "placing a job takes time that grows linearly with the cluster",
        "3.25e-4 s at 100 servers, 1.36e-2 s at 10,000, and 4,000 jobs within a minute (Sec. 6.2)",
        {"100": 3.25e-4, "10000": 1.36e-2},
    ),
    "11": PaperStatement(
        "NetPack's advantage grows as switch memory shrinks",
        "30 to 92 % lower JCT, and 87 to 92 % without any memory (Sec. 6.3)",
        {"least": 0.30, "most": 0.92, "none_least": 0.87, "none_most": 0.92},
    ),
    "12": PaperStatement(
        "NetPack's advantage grows with oversubscription",
        "52 % lower JCT on average at 1:1, 89 % at 20:1 (Sec. 6.3)",
        {"first": 0.52, "last": 0.89},
    ),
    "13": PaperStatement(
        "NetPack beats the naive combination Comb on all three workloads",
        "at most 63 % lower JCT (Sec. 6.4)",
        {"most": 0.63},
    ),
    "15": PaperStatement(
        "the estimate of rates fits what is measured",
        "the estimates approximately fit the testbed, but for a small delay when jobs come and go (Sec. 6.4)",
        {},
    ),
}

# How this was done, in sentences for the page.
SETUPS = (
    "Set-ups of the paper: simulator, 16 racks x 16 machines x 4 GPUs; testbed, 5 servers x 2 GPUs below one "
    "switch, here also simulated. Links of 100 Gbps, PAT 1 Tbps a switch, 1:1 unless said otherwise. Models: "
    "VGG-11, 16 and 19, AlexNet, ResNet-50 and 101, drawn by seed. Jobs exchange gradients through a "
    "parameter server with in-network aggregation (`ina`), and share links max-min fairly (`steady`)."
)
LOADS = (
    "Chosen by us, since the paper does not state it: Poisson and normal demand have a mean of 8 GPUs (testbed: "
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
REAL = "Real trace: Microsoft's Philly from 2017-10-01 on, for each seed jobs in a row from another tenth of it."
GENERATED = "No folder of traces was given: the real trace is generated from statistics of Philly."
SQUEEZED = (
    "For the simulator 2,000 jobs with arrivals squeezed to ten times the cluster's GPUs (a few jobs of "
    "weeks hold most of the GPU-time, so that less would leave the cluster half empty); for the testbed "
    "400 jobs of at most a day and 10 GPUs at load 0.8."
)
UNTESTED = (
    "Fig. 6 (the simulator against the testbed) needs the testbed. Fig. 14 (aggregation by switch memory) is a "
    "known value, which the tests of the rates check. Where the paper measured on its testbed (Figs. 7, 8, 11 "
    "and 13), five servers of two GPUs in our simulator represent it."
)
# Why NetPack may be behind, in sentences of claims.
ONE_FLOW = (
    "A reason to be behind: when NetPack chooses machines and the place of the parameter server (Eq. 1), it "
    "counts one flow to the server, as if switches always merged. Memory enters in step 4 only, which moves no "
    "job. Without memory the server's link carries a flow from every other machine of the job."
)
