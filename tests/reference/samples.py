"""The division of a batch among ranks, one sample at a time."""


def samples(batch: int, shares: tuple[float, ...], ranks: int) -> tuple[int, ...]:
    """Give every rank the whole part of its share, and correct that by the rank that is furthest off."""
    least = 1 if batch >= ranks else 0
    exact = [share * batch for share in shares]
    given = [max(least, int(each)) for each in exact]
    while (left := batch - sum(given)) != 0:
        step = 1 if left > 0 else -1
        able = [rank for rank in range(ranks) if step > 0 or given[rank] > least]
        rank = max(able, key=lambda rank: (step * (exact[rank] - given[rank]), -rank))
        given[rank] += step
    return tuple(given)
