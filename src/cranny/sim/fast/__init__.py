"""The compiled twin of `sim.replay`: the same events in the same order, to the last bit, for long traces."""
