"""Clusters read from what schedulers print, or guessed from a log, as files to edit.

Nothing here talks to a scheduler: it only reads text that one has printed.
"""
