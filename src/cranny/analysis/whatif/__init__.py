"""What a job log would have looked like under other policies, for the people who run the cluster."""

from cranny.analysis.whatif.what_if import what_if

__all__ = ["what_if"]
