"""The placement service: accepts jobs, lets a policy place them, runs them through a backend, logs every event.

In it: the scheduler (single writer over the event log), the executor (drives the backend), the store, `api/` and
`dashboard/`. It is a shell around the engine that the simulator drives too: it must not make placement decisions.
"""
