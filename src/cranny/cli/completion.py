"""What a shell completes: names that options and arguments take.

Imported when a shell asks, between two keys, so nothing here may take long to import.
"""

import json
from collections.abc import Iterable
from importlib import resources

from cranny.model.collective import COLLECTIVES
from cranny.policies import TABLE


def policies(incomplete: str) -> list[str]:
    """Complete the name of a policy, also after others with commas between."""
    return _in_list(incomplete, TABLE)


def collectives(incomplete: str) -> list[str]:
    """Complete the name of a collective, also after others with commas between."""
    return _in_list(incomplete, COLLECTIVES)


def orders(incomplete: str) -> list[str]:
    """Complete the name of a queue order."""
    from cranny.core.queue import ORDERS

    return _in_list(incomplete, ORDERS)


def networks(incomplete: str) -> list[str]:
    """Complete the name of a network model."""
    from cranny.network.networks import NETWORKS

    return _in_list(incomplete, NETWORKS)


def presets(incomplete: str) -> list[str]:
    """Complete the name of a preset; shells complete files by themselves if no preset is meant."""
    # Read here, because what generates traces takes longer to import than a person waits between two keys.
    text = resources.files("cranny.data").joinpath("workloads.json").read_text(encoding="utf-8")
    return [name for name in json.loads(text)["workloads"] if name.startswith(incomplete)]


def _in_list(incomplete: str, known: Iterable[str]) -> list[str]:
    """Complete the last of names with commas between; those before it are not offered again."""
    before, comma, last = incomplete.rpartition(",")
    given = set(before.split(","))
    return [f"{before}{comma}{name}" for name in known if name.startswith(last) and name not in given]
