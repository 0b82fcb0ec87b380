"""NetPack's search for the machines of one job, compiled: workers (step 2) and parameter server (step 3).

The paper fills a table over all servers. A plan takes all free GPUs of a server or none, so of the servers with
equally many free GPUs and flows only the most valuable can be in a best plan. These are found in one pass, and the
table is filled over them alone: the same plans, in time that hardly grows with the cluster. The search reads what
the steady state leaves of servers and racks, in arrays, and prefers what comes first among equals.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cranny.core.jit import allocating

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NONE = -1
CROWDED = 15  # servers with at least so many flows count as equal
NEVER = -np.inf
MORE = 0.01  # of its link is what one server more costs a lean plan, so that of plans alike the smallest wins
FEWER, CROWDS, NOT_TAKEN = 0, 1, 2  # rows of the table, and the entry of a machine that is not part of the plan


class ServerArrays(NamedTuple):
    """What is left of each server, (servers,) each, and of each rack's uplink, (racks,) each."""

    free: Ints  # GPUs that the job may have
    up: Bools  # whether it takes jobs: a parameter server needs no GPU, but a machine that does
    link_gbps: Floats  # C
    left_gbps: Floats  # bw
    flows: Floats
    rack: Ints
    rack_gbps: Floats  # C(rack)
    rack_flows: Floats  # FC


class PlanRules(NamedTuple):
    """How plans are valued; see the policy."""

    lean: bool
    printed: bool  # whether Eq. 1 is as printed
    has_server: bool  # whether the job has a parameter server


class PlanChoice(NamedTuple):
    """The best plan found so far."""

    machines: Ints  # of the workers; none if there is no plan
    server: int  # of the parameter server, or NONE
    workers_value: float  # V
    server_value: float
    share_gbps: float  # of the most crowded link that the plan uses
    value: float  # of everything together


@allocating
def tightest(free: Ints, gpus: int, rack: Ints, rank: Floats, by_free: bool) -> int:  # noqa: FBT001 - a tie rule
    """Return the machine with the fewest free GPUs that holds a job, or NONE; of equals in the first rack."""
    found, fewest = NONE, 1 << 30
    if by_free:
        rank = tight_racks(free, rack, rank)
    for machine in range(len(free)):
        if gpus <= free[machine] <= fewest:
            if free[machine] == fewest and rank[rack[machine]] >= rank[rack[found]]:
                continue
            found, fewest = machine, free[machine]
    return found


@allocating
def tight_racks(free: Ints, rack: Ints, rank: Floats) -> Floats:
    """Return a rank of each rack, (racks,): by a rank in whole numbers, then some free GPUs, then the fewest."""
    gpus = np.zeros(len(rank))
    for machine in range(len(free)):
        gpus[rack[machine]] += free[machine]
    last = gpus.sum() + 1.0
    for each in range(len(gpus)):
        if gpus[each] == 0.0:
            gpus[each] = last
        gpus[each] += 2.0 * last * rank[each]
    return gpus


@allocating
def value(servers: ServerArrays, lean: bool, machine: int, flows: float) -> float:  # noqa: FBT001 - of `PlanRules`
    """Return the value of a server: what is left of its link, less what the jobs there lose."""
    left = servers.left_gbps[machine]
    loss = (servers.link_gbps[machine] - left) / (servers.flows[machine] + flows)
    return float(-loss - MORE * servers.link_gbps[machine] if lean else left - loss)


@allocating
def best(servers: ServerArrays, spans: Ints, gpus: int, most_free: int, rules: PlanRules) -> PlanChoice:
    """Return the best plan with machines of one of these spans each, (spans, 2)."""
    chosen = PlanChoice(np.empty(0, np.int64), NONE, 0.0, 0.0, 0.0, NEVER)
    room = gpus + most_free
    values = np.empty(len(servers.free))
    for machine in range(len(values)):
        values[machine] = value(servers, rules.lean, machine, 1.0)
    for span in range(len(spans)):
        first, past = spans[span]
        if servers.free[first:past].sum() < gpus:
            continue
        top, count = _most_valuable(servers, values, first, past, room, most_free)
        for crowded in range(CROWDED + 1):
            if count[crowded].sum() == 0:
                continue
            items, fewer = _items(values, top, count, crowded, room)
            totals, taken = _table(servers, values, items, fewer, room)
            for held in range(gpus, room + 1):
                if totals[held] > NEVER:
                    machines = _plan(servers, items, taken, held)
                    if servers.free[machines].min() <= held - gpus:
                        continue  # one of them is not needed
                    candidate = _with_server(servers, first, past, machines, totals[held], rules)
                    if candidate.value > chosen.value:
                        chosen = candidate
    return chosen


@allocating
def best_in_order(
    servers: ServerArrays,
    rank: Floats,
    by_free: bool,  # noqa: FBT001 - a tie rule
    rack_plans: bool,  # noqa: FBT001 - an option of the policy
    gpus: int,
    most_free: int,
    rules: PlanRules,
) -> PlanChoice:
    """Return the best plan, of equals the first if racks are sorted by rank, (racks,), or then by free GPUs."""
    if by_free:
        rank = tight_racks(servers.free, servers.rack, rank)
    place = np.empty(len(rank), np.int64)
    place[np.argsort(rank, kind="mergesort")] = np.arange(len(rank))
    past = np.zeros(len(place) + 1, np.int64)  # (places + 1,) machines of racks up to a place
    for machine in range(len(servers.rack)):
        past[place[servers.rack[machine]] + 1] += 1
    past = past.cumsum()
    spans = np.empty((len(place) + 1 if rack_plans else 1, 2), np.int64)
    for each in range(len(spans) - 1):
        spans[each] = past[each : each + 2]
    spans[-1] = 0, past[-1]
    order = np.empty(len(servers.rack), np.int64)
    for machine in range(len(order)):
        at = place[servers.rack[machine]]
        order[past[at]] = machine
        past[at] += 1
    in_order = ServerArrays(
        servers.free[order],
        servers.up[order],
        servers.link_gbps[order],
        servers.left_gbps[order],
        servers.flows[order],
        servers.rack[order],
        servers.rack_gbps,
        servers.rack_flows,
    )
    found = best(in_order, spans, gpus, most_free, rules)
    server = found.server if found.server == NONE else order[found.server]
    return PlanChoice(
        np.sort(order[found.machines]),
        server,
        found.workers_value,
        found.server_value,
        found.share_gbps,
        found.value,
    )


@allocating
def _most_valuable(
    servers: ServerArrays, values: Floats, first: int, past: int, room: int, most_free: int
) -> tuple[Ints, Ints]:
    """Return the most valuable machines by flows and free GPUs, and how many there are of each kind.

    There are as many of a kind as a plan can have, the most valuable first, among equals the lowest.
    """
    top = np.empty((CROWDED + 1, most_free + 1, room), np.int64)
    count = np.zeros((CROWDED + 1, most_free + 1), np.int64)
    for machine in range(first, past):
        free = servers.free[machine]
        if free == 0:
            continue
        crowded = min(int(np.ceil(servers.flows[machine])), CROWDED)
        kind, place = top[crowded, free], count[crowded, free]
        if place < room // free:
            count[crowded, free] += 1
        elif values[kind[place - 1]] >= values[machine]:
            continue
        else:
            place -= 1  # the last must go
        while place > 0 and values[kind[place - 1]] < values[machine]:
            kind[place] = kind[place - 1]
            place -= 1
        kind[place] = machine
    return top, count


@allocating
def _items(values: Floats, top: Ints, count: Ints, crowded: int, room: int) -> tuple[Ints, int]:
    """Return the machines that may be in a best plan with so many flows, and how many have fewer."""
    items = np.empty(count[: crowded + 1].sum(), np.int64)
    total = 0
    for free in range(1, count.shape[1]):
        at = np.zeros(crowded, np.int64)
        for _ in range(room // free):
            first, most = NONE, NEVER
            for each in range(crowded):
                if at[each] < count[each, free] and values[top[each, free, at[each]]] > most:
                    first, most = each, values[top[each, free, at[each]]]
            if first == NONE:
                break
            items[total] = top[first, free, at[first]]
            at[first] += 1
            total += 1
    fewer = total
    for free in range(1, count.shape[1]):
        for place in range(count[crowded, free]):
            items[total] = top[crowded, free, place]
            total += 1
    return items[:total], fewer


@allocating
def _table(servers: ServerArrays, values: Floats, items: Ints, fewer: int, room: int) -> tuple[Floats, Bytes]:
    """Fill the knapsack: the highest value of machines with so many GPUs together, and which were taken.

    There is a row for plans with `fewer` flows and one for those with at least one of the crowded machines.
    """
    totals = np.full((2, room + 1), NEVER)
    totals[FEWER, 0] = 0.0
    taken = np.full((len(items), 2, room + 1), NOT_TAKEN, np.uint8)
    for i in range(len(items)):
        free = servers.free[items[i]]
        for held in range(room, free - 1, -1):
            if i < fewer:
                with_it = totals[FEWER, held - free] + values[items[i]]
                if with_it > totals[FEWER, held]:
                    totals[FEWER, held] = with_it
                    taken[i, FEWER, held] = FEWER
            else:
                for before in (FEWER, CROWDS):
                    with_it = totals[before, held - free] + values[items[i]]
                    if with_it > totals[CROWDS, held]:
                        totals[CROWDS, held] = with_it
                        taken[i, CROWDS, held] = before
    return totals[CROWDS], taken


@allocating
def _plan(servers: ServerArrays, items: Ints, taken: Bytes, held: int) -> Ints:
    """Return the machines of the best plan with so many GPUs and a crowded machine, rising."""
    machines = np.empty(len(items), np.int64)
    count, row = 0, CROWDS
    for i in range(len(items) - 1, -1, -1):
        before = taken[i, row, held]
        if before != NOT_TAKEN:
            machines[count] = items[i]
            count += 1
            held -= servers.free[items[i]]
            row = int(before)
    return np.sort(machines[:count])


@allocating
def _with_server(
    servers: ServerArrays, first: int, past: int, machines: Ints, workers_value: float, rules: PlanRules
) -> PlanChoice:
    """Judge a plan with the best place for its parameter server (Eq. 1); beside a worker, if that is as good."""
    share = np.inf
    beside = np.zeros(past - first, np.bool_)
    for machine in machines:
        beside[machine - first] = True
        share = min(share, servers.link_gbps[machine] / (servers.flows[machine] + 1.0))
    racks = _rack_shares(servers, machines, rules.printed)
    if not rules.has_server:
        share, gain = _gain(share, racks.max() if rules.printed else racks.min(), rules.printed)
        return PlanChoice(machines, NONE, workers_value, 0.0, share, workers_value + gain)
    chosen = PlanChoice(machines, NONE, 0.0, 0.0, 0.0, NEVER)
    for inside in (True, False):
        for machine in range(first, past):
            if beside[machine - first] != inside or not servers.up[machine]:
                continue
            more = 0.0 if inside else 1.0  # epsilon: flows that the parameter server adds
            # A worker's stream to a server on its own machine takes no bandwidth from other jobs.
            of_server = 0.0 if rules.lean and inside else value(servers, rules.lean, machine, 1.0 + more)
            more = more if rules.printed else 0.0
            own = servers.link_gbps[machine] / (servers.flows[machine] + more + 1.0)
            link, gain = _gain(min(share, own), racks[servers.rack[machine]], rules.printed)
            total = workers_value + of_server + gain
            if total > chosen.value:
                chosen = PlanChoice(machines, machine, workers_value, of_server, link, total)
    return chosen


@allocating
def _gain(share: float, rack_share: float, printed: bool) -> tuple[float, float]:  # noqa: FBT001 - of `PlanRules`
    """Return the share that counts, and what it adds to a plan: the smallest, or as printed less the largest."""
    if printed:
        share = max(share, rack_share)
        return share, -share
    share = min(share, rack_share)
    return share, share


@allocating
def _rack_shares(servers: ServerArrays, machines: Ints, largest: bool) -> Floats:  # noqa: FBT001 - of `PlanRules`
    """Return the smallest share of the rack uplinks used, or the largest, by the rack of the server, (racks,).

    Every other rack of the plan sends one merged flow up; the server's rack gets one from each.
    """
    sign = -1.0 if largest else 1.0  # the largest is the smallest of the negated
    racks = len(servers.rack_gbps)
    inside = np.zeros(racks, np.bool_)
    for machine in machines:
        inside[servers.rack[machine]] = True
    count, least, second, narrowest = 0, np.inf, np.inf, NONE
    for rack in range(racks):
        if inside[rack]:
            count += 1
            share = sign * servers.rack_gbps[rack] / (servers.rack_flows[rack] + 1.0)
            if share < least:
                least, second, narrowest = share, least, rack
            else:
                second = min(second, share)
    shares = np.empty(racks)
    for rack in range(racks):
        others = count - inside[rack]
        if others == 0:
            shares[rack] = sign * np.inf
        else:
            own = sign * servers.rack_gbps[rack] / (servers.rack_flows[rack] + others)
            shares[rack] = sign * min(own, second if rack == narrowest else least)
    return shares
