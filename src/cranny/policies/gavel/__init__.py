"""Gavel (OSDI 2020): rounds, in which each job has its GPUs of one type or none."""

from cranny.policies.gavel.rounds import Gavel

__all__ = ["Gavel"]
