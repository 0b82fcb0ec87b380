"""Evaluations of papers, rebuilt: the paper's value beside ours, and a verdict on every claim.

The engine is here (cells that are run, claims and verdicts, plots, the page); a folder a paper holds the paper as
data, what it runs, and how its claims are judged. Nothing here decides a placement, and no paper imports another.
"""
