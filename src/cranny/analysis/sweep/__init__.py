"""Sweeps: many simulations that differ in policy, load, seed, cluster or trace, on this machine or on Ray.

Nothing here is particular to a paper: experiments of papers are in `repro`.
"""
