"""HAS and JPS, and what they are compared with: shares of a mixed cluster for many jobs.

K. Liu, J. Wang, Z. Huang, J. Pan, "Sampling-Based Multi-Job Placement for Heterogeneous Deep Learning Clusters",
TPDS 2024. `has` and `jps` follow the paper; `optimus`, `optimus_lb`, `las` and `gavel` are its baselines (Optimus:
EuroSys 2018; Gavel: OSDI 2020); `direct` is ours: it minimises the mean completion time itself.

Each method shares what one `Problem` describes. As policies (`methods`, `rounds`) they share a cluster whenever
something changes.
"""

from cranny.policies.has.methods import Has, HasExact, Jps, Las, OptimusLb, OptimusShares
from cranny.policies.has.rounds import Gavel

__all__ = ["Gavel", "Has", "HasExact", "Jps", "Las", "OptimusLb", "OptimusShares"]
