"""Throughputs of models on GPU types: measured by us where we could, otherwise published, each with its source.

Numbers of one source compare; numbers of two sources do not, since batch, data and precision differ. So a matrix
of jobs and types is filled from one source, or from probes (`core.shares.estimate`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from cranny.model.errors import unknown
from cranny.model.profile import library


@dataclass(frozen=True, slots=True)
class Source:
    """Throughputs that compare with each other."""

    kind: str  # measured, or published
    source: str
    setting: str
    missing: str
    models: Mapping[str, Mapping[str, float]]  # samples/s by model and GPU type


@cache
def sources() -> Mapping[str, Source]:
    """Return all that is known, by the name of its source."""
    text = resources.files("cranny.data").joinpath("throughputs.json").read_text(encoding="utf-8")
    found = {name: Source(**entry) for name, entry in json.loads(text)["sources"].items()}
    found["cranny"] = _measured()
    return found


def source(name: str) -> Source:
    """Return what one source knows."""
    try:
        return sources()[name]
    except KeyError:
        raise unknown("source of throughputs", name, sources()) from None


def _measured() -> Source:
    """Return what we measured: each model at its largest batch."""
    profiles = library()
    models = {name: {profile.gpu_type: profile.batch / profile.iteration_s} for name, profile in profiles.items()}
    return Source(
        "measured",
        "the authors of cranny, data/profiles_h200.json",
        "synthetic data, bf16 autocast, largest batch of each model",
        "all GPU types but the H200",
        models,
    )
