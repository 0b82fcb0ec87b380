"""Jobs that compute and communicate in turn, and share links only while they communicate: phase by phase.

Shifts and periods are given: which ones are best is computed in `network.interleave`.
"""
