"""CPU milliseconds to find the rates of all running jobs, and to bring them up to date when one comes or goes.

Jobs have their workers on 2 to 8 machines, half of them within a rack, and a parameter server, half of them beside
a worker. `netpack` is the set-up of NetPack's simulations: switches of 1 Tbps PAT, racks not oversubscribed. In
`oversubscribed` (4:1) and `scarce` (4:1, PAT of 100 Gbps) most jobs are held by uplinks of racks, and one job
changes the rates of thousands by more than a millionth: no update can be local there. What is promised is the time
for each rate that changes.
"""

from functools import partial

import numpy as np

from benchmarks.measure import Budget, Measured, reference, timed_ms
from cranny.core.flows import parameter_server
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.network.steady.rates import Rates

RACKS = 625
MACHINES_PER_RACK = 16
JOBS = 10_000
RUNS = 5
FELT = 1e-6  # relative changes of rates that are more than rounding by any measure
UPDATES = 100
REFERENCE_RACKS = 4
REFERENCE_JOBS = 60

# Oversubscription of the racks, and PAT of their switches.
SETTINGS = {
    "netpack": (1.0, 1000.0),
    "oversubscribed": (4.0, 1000.0),
    "scarce": (4.0, 100.0),
    "plain": (1.0, None),
}

Seats = tuple[list[int], int]  # machines of the workers, and of the parameter server


def run() -> Measured:
    """Solve from scratch and job by job in several settings; then a small case against Algorithm 1 by the book."""
    seats = _draw(RACKS, JOBS)
    metrics: dict[str, float] = {}
    for name, (oversubscription, pat_gbps) in SETTINGS.items():
        _measure(metrics, name, _cluster(RACKS, oversubscription, pat_gbps), seats)
    book = reference("steady")
    if book is not None:
        cluster, seats = _cluster(REFERENCE_RACKS, *SETTINGS["netpack"]), _draw(REFERENCE_RACKS, REFERENCE_JOBS)
        jobs = [book.Tenant(machines, server) for machines, server in seats]
        slow_ms = timed_ms(lambda: book.water_filling(cluster, jobs))[0]
        rates = Rates.of(cluster)
        rates.add_all(parameter_server(cluster, machines, server) for machines, server in seats)
        metrics["times_faster_than_reference"] = slow_ms / min(timed_ms(rates.solve)[0] for _ in range(RUNS))
    budgets = [Budget(f"full_ms_{name}", metrics[f"full_ms_{name}"], 50.0) for name in SETTINGS]
    budgets += [Budget(f"update_ms_{name}", metrics[f"update_ms_{name}"], 1.0) for name in ("netpack", "plain")]
    budgets += [
        Budget(f"us_per_change_{name}", metrics[f"us_per_change_{name}"], 2.0)
        for name in ("oversubscribed", "scarce")
    ]
    return Measured("steady", metrics, budgets)


def _measure(metrics: dict[str, float], name: str, cluster: Cluster, seats: list[Seats]) -> None:
    """Add to the metrics the best time from scratch, the times of updates, and how many rates each changes."""
    ina = SETTINGS[name][1] is not None
    flows = [parameter_server(cluster, machines, server, ina=ina) for machines, server in seats]
    rates = Rates.of(cluster)
    numbers = rates.add_all(flows)
    rates.remove(rates.add(flows[0]))  # compiled before time is taken
    rng, everyone = np.random.default_rng(1), np.array(numbers)
    metrics[f"full_ms_{name}"] = min(timed_ms(rates.solve)[0] for _ in range(RUNS))
    updates_ms, changed, felt = [], [], []
    for job in rng.integers(0, len(numbers), UPDATES).tolist():
        for update in (
            partial(rates.remove, numbers[job]),
            partial(rates.add, flows[job]),
        ):  # it gets its number back
            before = rates.rates_gbps(everyone)
            updates_ms.append(timed_ms(update)[0])
            changed.append(len(rates.changed()))
            felt.append(np.count_nonzero(abs(rates.rates_gbps(everyone) - before) > FELT * before))
    metrics[f"update_ms_{name}"] = float(np.mean(updates_ms))
    metrics[f"median_update_ms_{name}"] = float(np.median(updates_ms))
    metrics[f"p99_update_ms_{name}"] = float(np.quantile(updates_ms, 0.99))
    metrics[f"jobs_changed_{name}"] = float(np.mean(changed))
    metrics[f"jobs_felt_{name}"] = float(np.mean(felt))
    metrics[f"us_per_change_{name}"] = 1e3 * sum(updates_ms) / sum(changed)


def _cluster(racks: int, oversubscription: float, pat_gbps: float | None) -> Cluster:
    """Build racks as in NetPack's simulations."""

    def rack(index: int) -> Switch:
        machines = tuple(Machine(f"rack{index}-machine{i}", 4) for i in range(MACHINES_PER_RACK))
        return Switch(f"rack{index}", machines, (100.0,) * MACHINES_PER_RACK, pat_gbps=pat_gbps)

    up_gbps = 100.0 * MACHINES_PER_RACK / oversubscription
    return Cluster.of(Switch("core", tuple(rack(index) for index in range(racks)), (up_gbps,) * racks))


def _draw(racks: int, jobs: int) -> list[Seats]:
    """Draw where jobs sit."""
    rng = np.random.default_rng(0)
    everywhere = racks * MACHINES_PER_RACK
    seats = []
    for _ in range(jobs):
        count = int(rng.choice([2, 3, 4, 8], p=[0.5, 0.2, 0.2, 0.1]))
        within = rng.random() < 0.5
        first = int(rng.integers(racks)) * MACHINES_PER_RACK if within else 0
        machines = first + rng.choice(MACHINES_PER_RACK if within else everywhere, count, replace=False)
        beside = rng.random() < 0.5
        seats.append((machines.tolist(), int(machines[0]) if beside else int(rng.integers(everywhere))))
    return seats
