"""Shares of a mixed cluster: how many workers of which GPU type each job gets, and what that gives."""
