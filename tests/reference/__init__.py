"""Slow, literal readings that the fast code is compared with."""
