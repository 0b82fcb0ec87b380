"""Experiments of papers, rebuilt: the paper's value beside ours, and whether they agree."""
