"""Questions asked of many replays: what-if on a job log, sweeps, and why a job was placed where it was.

Nothing here decides a placement or knows a web page of the service: it runs scenarios and compares their results.
"""
