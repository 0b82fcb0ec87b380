"""The steady state of a shared network: the rate of every running job, max-min fair.

Nothing here knows a policy, or when iterations begin: that is `network.phases`.
"""
