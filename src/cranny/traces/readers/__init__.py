"""Readers of job logs, one module a format, and what they share. They only read: nothing is simulated here."""
