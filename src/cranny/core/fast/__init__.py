"""Placing a job on several machines, compiled: what placers see, and what a draft of theirs costs."""
