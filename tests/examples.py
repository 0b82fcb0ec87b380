"""How many examples a property test draws."""

import os


def examples(most: int) -> int:
    """Return all of them for `make fuzz`, which draws at random; CI draws the same each time: half are enough."""
    return most if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else -(-most // 2)
