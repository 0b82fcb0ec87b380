"""Frozen values that everything else is built on: clusters, jobs, profiles, placements, plans and events.

Nothing here changes after it is made, decides anything, or imports another package of cranny.
"""
