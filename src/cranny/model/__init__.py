"""Frozen values: what the rest of cranny talks about."""
