"""Backends: where a cluster is read from, and what starts, watches and stops the processes of jobs.

One protocol, one contract test. A backend must not decide where a job runs, and must not import the service.
"""
