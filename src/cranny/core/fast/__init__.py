"""Compiled placement of a job on several machines: the arrays that placers read, and what a draft costs.

Results must equal those of the Python code beside it to the last bit. No event loop and no policy belongs here.
"""
