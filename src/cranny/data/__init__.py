"""Measured numbers that ship with cranny, each file with its source."""
