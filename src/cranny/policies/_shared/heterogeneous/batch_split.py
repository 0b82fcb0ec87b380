"""The proportional split of HAS/JPS (TPDS 2024), Eq. 12, to whole samples."""

import numpy as np

from cranny.policies._shared.heterogeneous.problem import Floats, Ints


def split(samples: int, rates: Floats) -> Ints:
    """Give each worker samples in proportion to its rate, whole ones that sum exactly; (workers,).

    Eq. 12 gives fractions. Each worker gets the whole part, and the samples left over go to those that lost most.
    """
    fair = samples * (rates / rates.sum())
    parts: Ints = np.floor(fair).astype(np.int64)
    left = samples - int(parts.sum())
    # Rounding may take away one sample too many, or leave one: the sign of `left` says which.
    order = np.argsort(parts - fair, kind="stable")
    if left < 0:
        parts[order[left:]] -= 1
    else:
        parts[order[:left]] += 1
    return parts
