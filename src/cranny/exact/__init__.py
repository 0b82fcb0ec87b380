"""Exact references for small cases: what the best possible answer is, however long it takes to find."""
