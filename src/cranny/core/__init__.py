"""The numeric core: the state of a cluster, what placements cost, and the engine that drives both."""
