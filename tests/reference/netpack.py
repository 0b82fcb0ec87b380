"""Steps 2 and 3 of NetPack's Algorithm 2 by the book: the table over all servers, then all places for the PS."""

from typing import NamedTuple

from cranny.policies.netpack.plan_kernel import PlanRules, ServerArrays


class Best(NamedTuple):
    """The best plan: its value, the workers' machines and that of the parameter server."""

    value: float
    machines: tuple[int, ...]
    server: int | None


def server_value(servers: ServerArrays, machine: int, extra: float, *, lean: bool) -> float:
    """Line 16: what is left, less what those lose that are there."""
    left, link = float(servers.left_gbps[machine]), float(servers.link_gbps[machine])
    loss = (link - left) / (float(servers.flows[machine]) + extra)
    return -loss - 0.01 * link if lean else left - loss


def worker_placement(
    servers: ServerArrays, machines: range, gpus: int, most_free: int, *, lean: bool
) -> dict[tuple[int, int], tuple[float, tuple[int, ...]]]:
    """Lines 12 to 25: for each (f, g) the best value, and the servers that give it.

    What cannot be reached is left out, where the paper begins with zeros.
    """
    table: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {(0, 0): (0.0, ())}
    for machine in machines:
        w = int(servers.free[machine])
        if not w:
            continue
        new = dict(table)
        for (i, j), (value, chosen) in table.items():
            f, g = max(i, int(servers.flows[machine])), j + w
            if g > gpus + most_free:
                continue
            candidate = value + server_value(servers, machine, 1.0, lean=lean)
            if (f, g) not in new or candidate > new[f, g][0]:
                new[f, g] = (candidate, (*chosen, machine))
        table = new
    return table


def rack_shares(servers: ServerArrays, machines: tuple[int, ...], server: int | None) -> list[float]:
    """C(rack) / (FC_r + n_r) of the rack uplinks that the job uses: one merged flow from each, but to one."""
    racks = {int(servers.rack[machine]) for machine in machines}
    homes = range(len(servers.rack_gbps)) if server is None else [int(servers.rack[server])]
    found = []
    for home in homes:
        others = racks - {home}
        found += [float(servers.rack_gbps[rack]) / (float(servers.rack_flows[rack]) + 1) for rack in others]
        if others:
            found.append(float(servers.rack_gbps[home]) / (float(servers.rack_flows[home]) + len(others)))
    return found


def share(servers: ServerArrays, machines: tuple[int, ...], server: int | None) -> float:
    """Our reading of the penalty: what the job gets of its most crowded link, those of racks included."""
    ends = {*machines} if server is None else {*machines, server}
    links = [float(servers.link_gbps[machine]) / (float(servers.flows[machine]) + 1) for machine in ends]
    return min([*links, *rack_shares(servers, machines, server)])


def printed_penalty(servers: ServerArrays, machines: tuple[int, ...], server: int | None) -> float:
    """Sec. 5.2: max over r of C(rack) / (FC_r + n_r) and C / (f_max + 1), all links having the same C."""
    f_max = max(float(servers.flows[machine]) for machine in machines)
    if server is not None:
        epsilon = 0 if server in machines else 1
        f_max = max(f_max, float(servers.flows[server]) + epsilon)
    return max([float(servers.link_gbps[0]) / (f_max + 1), *rack_shares(servers, machines, server)])


def best(servers: ServerArrays, spans: list[tuple[int, int]], gpus: int, most_free: int, rules: PlanRules) -> Best:
    """Step 3: exhaust plans and places for the parameter server (Eq. 1)."""
    found = Best(float("-inf"), (), None)
    for first, past in spans:
        table = worker_placement(servers, range(first, past), gpus, most_free, lean=rules.lean)
        for (_, g), (value, machines) in table.items():
            if g < gpus or min(int(servers.free[machine]) for machine in machines) <= g - gpus:
                continue  # too few GPUs, or a server too many
            up = [machine for machine in range(first, past) if servers.up[machine]]
            for server in up if rules.has_server else [None]:
                if rules.printed:
                    total = value - printed_penalty(servers, machines, server)
                else:
                    total = value + share(servers, machines, server)
                if server is not None:
                    inside = server in machines
                    if not (rules.lean and inside):
                        total += server_value(servers, server, 1.0 if inside else 2.0, lean=rules.lean)
                if total > found.value:
                    found = Best(total, machines, server)
    return found
