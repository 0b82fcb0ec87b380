"""The auction of Themis, step by step: every job bids, and each step looks at all bids again."""

import math
from collections.abc import Sequence

from cranny.core.snapshot import Snapshot, Waiting
from cranny.policies._shared.promises import GpuPool
from cranny.policies.themis import Themis


class LiteralThemis(Themis):
    """Themis with that auction."""

    def _auction(self, bidding: Sequence[Waiting], view: Snapshot, base: Snapshot) -> dict[int, int]:
        bidders = [self._bidder(view, each) for each in bidding]
        rho = [self._rho(bidder, 0, base) for bidder in bidders]
        order = sorted(range(len(bidders)), key=lambda number: -rho[number])
        visible = max(1, math.ceil(len(order) * (1.0 - self.fairness) - 1e-9))
        pool = GpuPool(base.free.tolist())
        sizes: dict[int, int] = {}
        for part in (order[:visible], order[visible:]):
            bids = {number: self._bids(bidders[number], base) for number in part}
            while True:
                steps = [
                    (each[0][0] / each[0][1], number, each[0][1])
                    for number, each in bids.items()
                    if each and each[0][1] <= pool.left(base.eligible(bidders[number].job))
                ]
                if not steps:
                    break
                _, number, cost = max(steps, key=lambda step: step[0])  # of equal ones the first
                sizes[number] = sizes.get(number, 0) + cost
                pool.take(base.eligible(bidders[number].job), cost)
                bids[number] = bids[number][1:]
        return sizes
