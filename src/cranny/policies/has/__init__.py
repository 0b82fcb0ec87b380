"""HAS and JPS, and what they are compared with: shares of a mixed cluster for many jobs.

K. Liu, J. Wang, Z. Huang, J. Pan, "Sampling-Based Multi-Job Placement for Heterogeneous Deep Learning Clusters",
TPDS 2024. `has` and `jps` follow the paper; `optimus`, `optimus_lb`, `las` and `gavel` are its baselines;
`direct` is ours: it minimises the mean completion time itself.
"""
