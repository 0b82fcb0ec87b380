"""Which policy would suit a job log, by how much, why, and how sure that is.

Nothing here reads a log format (`traces`) or replays by itself (`run`).
"""

from cranny.analysis.advise.advice import Advice, advise

__all__ = ["Advice", "advise"]
