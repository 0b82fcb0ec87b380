"""The numeric core: the state of a cluster, what placements cost, and the engine that drives both.

No policy and no network model belongs here, and nothing reads a clock, logs or does I/O.
"""
