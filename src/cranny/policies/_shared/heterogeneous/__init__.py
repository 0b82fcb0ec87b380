"""How workers of several GPU types are divided among jobs: the problem, solutions, and the policies around them.

Shared by HAS/JPS, Optimus and Gavel. No method of a paper is here but Optimus's greedy, which several use.
"""
