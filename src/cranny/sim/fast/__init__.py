"""The compiled twin of `sim.replay`: the same events in the same order, to the last bit, for long traces.

No feature is only here: what the compiled code cannot replay goes to `sim.replay`.
"""
