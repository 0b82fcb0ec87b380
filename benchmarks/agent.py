"""CPU time that the agent inside a job adds to an iteration of 100 ms, against a loop without it.

The clock is one that the loop moves on, so that thousands of iterations take seconds; files are real ones.
"""

import tempfile
from pathlib import Path

from benchmarks.measure import Budget, Measured, timed_ms
from cranny.agent.job import JobAgent
from cranny.agent.pacing import Pacer
from cranny.channel.control import Control, Pace

ITERATION_S = 0.1
ITERATIONS = 5000  # 500 s of training, with 100 reports
RANKS = 64
RUNS = 3
SHARE = 1e-3  # of an iteration


class _Loop:
    """A training loop in a time of its own."""

    def __init__(self) -> None:
        self.now_s = 1.8e9

    def clock(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def agent(self, folder: Path | None, rank: int) -> JobAgent:
        """Return an agent that goes by the time of the loop."""
        env = {} if folder is None else {"CRANNY_CHANNEL": str(folder), "CRANNY_CHANNEL_TOKEN": "token"}
        pacer = Pacer(clock=self.clock, timer=self.clock, sleep=self.work)
        return JobAgent(
            rank=rank, ranks=RANKS, batch=4096, env=env, pacer=pacer, clock=self.clock, timer=self.clock
        )


def run() -> Measured:
    """Compare loops with and without an agent; the least of several runs, since noise only ever adds."""
    empty_us = _least_us(None, rank=0, agent=False)
    control = Control(1, shares=tuple(1.0 / RANKS for _ in range(RANKS)))
    paced = Control(1, pace=Pace(1.01 * ITERATION_S, 0.0, 0.0))
    metrics = {
        "measures_us": _least_us(None, rank=0) - empty_us,
        "reports_us": _least_us(control, rank=1) - empty_us,
        "leads_us": _least_us(control, rank=0) - empty_us,
        "leads_and_paces_us": _least_us(paced, rank=0) - empty_us,
    }
    limit_us = SHARE * ITERATION_S * 1e6
    return Measured("agent", metrics, [Budget(name, value, limit_us) for name, value in metrics.items()])


def _least_us(control: Control | None, rank: int, *, agent: bool = True) -> float:
    """Return the CPU time of an iteration."""
    return min(_run_us(control, rank, agent=agent) for _ in range(RUNS))


def _run_us(control: Control | None, rank: int, *, agent: bool) -> float:
    loop = _Loop()
    with tempfile.TemporaryDirectory() as name:
        folder = None if control is None else Path(name)
        job = loop.agent(folder, rank) if agent else None
        if control is not None:
            control.write(Path(name))

        def iterate() -> None:
            for _ in range(ITERATIONS):
                if job is not None:
                    job.step()
                loop.work(ITERATION_S)

        return 1e3 * timed_ms(iterate)[0] / ITERATIONS
