"""The service: takes jobs, lets a policy place them, runs them through a backend, and remembers everything.

It is a shell around the same engine that the simulator drives, and decides nothing itself.
"""
