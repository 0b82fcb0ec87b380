"""CASSINI's interleaving: circles of link demand, how compatible they are, and time shifts that fit them together.

Only geometry: which candidate placement is taken is up to a policy, and how jobs then run to `network.phases`.
"""
