"""HAS and JPS, and what they are compared with: shares of a mixed cluster for many jobs.

K. Liu, J. Wang, Z. Huang, J. Pan, "Sampling-Based Multi-Job Placement for Heterogeneous Deep Learning Clusters",
TPDS 2024. `has` and `jps` follow the paper, `las` is one of its baselines, and `has_exact` is ours: it minimises
the mean completion time itself. Each method solves one `Problem`; as policies (`has_policies`) they share a
cluster whenever something changes.
"""

from cranny.policies.has.has_policies import Has, HasExact, Jps, Las

__all__ = ["Has", "HasExact", "Jps", "Las"]
