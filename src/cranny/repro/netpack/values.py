"""What NetPack's paper says: the numbers that its text states, and where.

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
class Said:
    """What the text says of one figure, and the numbers in it as shares or factors."""

    claim: str
    text: str
    numbers: Mapping[str, float]


PAPER = {
    "7": Said(
        "NetPack has the lowest mean JCT in every experiment",
        "13 to 45 % lower than baselines on the testbed with the real trace, up to 78 % in simulation (Sec. 6.2)",
        {"testbed_least": 0.13, "testbed_most": 0.45, "simulator_most": 0.78},
    ),
    "8": Said(
        "NetPack has the highest distribution efficiency in every experiment",
        "13 to 46 % higher on the testbed with the real trace, up to 2.4 times in simulation (Sec. 6.2)",
        {"testbed_least": 1.13, "testbed_most": 1.46, "simulator_most": 2.4},
    ),
    "9": Said(
        "NetPack is ahead from 100 to 10,000 servers",
        "31 % lower JCT on average (Sec. 6.2)",
        {"mean": 0.31},
    ),
    "10": Said(
        "placing a job takes time that grows linearly with the cluster",
        "3.25e-4 s at 100 servers, 1.36e-2 s at 10,000, and 4,000 jobs within a minute (Sec. 6.2)",
        {"100": 3.25e-4, "10000": 1.36e-2},
    ),
    "11": Said(
        "NetPack's advantage grows as switch memory shrinks",
        "30 to 92 % lower JCT, and 87 to 92 % without any memory (Sec. 6.3)",
        {"least": 0.30, "most": 0.92, "none_least": 0.87, "none_most": 0.92},
    ),
    "12": Said(
        "NetPack's advantage grows with oversubscription",
        "52 % lower JCT on average at 1:1, 89 % at 20:1 (Sec. 6.3)",
        {"first": 0.52, "last": 0.89},
    ),
    "13": Said(
        "NetPack beats the naive combination Comb on all three workloads",
        "at most 63 % lower JCT (Sec. 6.4)",
        {"most": 0.63},
    ),
    "15": Said(
        "the estimate of rates fits what is measured",
        "the estimates approximately fit the testbed, but for a small delay when jobs come and go (Sec. 6.4)",
        {},
    ),
}
