"""Sweeps: many simulations that differ in policy, load, seed, cluster or trace, on this machine or on Ray."""
