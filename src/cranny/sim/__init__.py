"""The simulator: a shell around the engine that carries its commands out in virtual time.

Nothing here decides a placement, reads a clock or does I/O.
"""
