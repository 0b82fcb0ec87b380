"""Backends: what starts, watches and stops the processes of jobs, behind one small interface."""
