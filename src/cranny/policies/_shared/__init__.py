"""What several policies share: candidates, resizing, locality, ranked filling, and heterogeneous clusters.

Nothing here is a policy by itself, and nothing here imports a policy.
"""
