"""Measured numbers that ship with cranny, each file with its source.

Only aggregates such as shares and quantiles, never rows of a log, and no code.
"""
