"""Which of equally good racks is first, for NetPack: the paper does not say, and it decides much.

    lowest          by number
    tightest        those whose switch has memory for one more job at the rate of a link first, of these those with
                    the fewest free GPUs; racks without any come last
    most-memory     those with the most memory left first
    random          drawn for each job

docs/understand/netpack.md has what they come to.
"""

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:  # these compile
    from cranny.policies.netpack.plan_kernel import Floats
    from cranny.policies.netpack.steady_state import SteadyState

TieRule = Literal["lowest", "tightest", "most-memory", "random"]
TIE_RULES: tuple[TieRule, ...] = get_args(TieRule)


def rack_ranks(rule: TieRule, steady: "SteadyState", rng: np.random.Generator) -> tuple["Floats", bool]:
    """Return a rank of each rack, (racks,), the lowest to be tried first, and whether equals go by free GPUs.

    Of those that are equal in everything the lowest by number is first.
    """
    left = steady.left
    if rule == "tightest":
        return left.short, True
    if rule == "most-memory":
        return -left.memory_gbps, False
    return rng.random(len(left.short)) if rule == "random" else np.zeros(len(left.short)), False
