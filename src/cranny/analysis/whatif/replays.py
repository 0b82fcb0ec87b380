"""The replays of a what-if: the log's own scheduler beside the policies, and each only once."""

from collections.abc import Callable, Sequence

from cranny.run import Result, run_many
from cranny.scenario import Scenario


def replay_once(
    scenarios: Sequence[Scenario], processes: int | None, progress: Callable[[int], None]
) -> list[Result]:
    """Replay scenarios at the same time; equal ones share a replay, as best fit and a scheduler that does it."""
    distinct: list[Scenario] = []
    replay_of = []  # each scenario
    for scenario in scenarios:
        found = [at for at, other in enumerate(distinct) if scenario.equals(other)]
        replay_of.append(found[0] if found else len(distinct))
        if not found:
            distinct.append(scenario)
    results: list[Result] = run_many(distinct, processes=processes, progress=progress)
    progress(len(scenarios))
    return [results[at] for at in replay_of]
