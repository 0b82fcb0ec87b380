"""What a job log would have looked like under other policies, for the people who run the cluster.

Nothing here reads a log format (`traces`) or draws a chart (`report`).
"""

from cranny.analysis.whatif.what_if import what_if

__all__ = ["what_if"]
