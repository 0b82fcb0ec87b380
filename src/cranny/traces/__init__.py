"""Job traces: our own format, readers of files, generators calibrated on published statistics, inspection.

Nothing here places or simulates jobs.
"""
