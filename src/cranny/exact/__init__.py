"""Exact references for small cases: what the best possible answer is, however long it takes to find.

No policy needs them at run time, but for `exact`; they are what tests and benchmarks compare policies with.
"""
