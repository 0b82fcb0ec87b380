"""Backends: what starts, watches and stops the processes of jobs, behind one small interface.

A backend decides nothing: it does what the service's executor asks of it, and reports what became of it.
"""
