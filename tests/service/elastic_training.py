"""A small training that can be resized: least squares by gradient descent, run as a process by tests.

Every rank computes the same, on data that follow from the step, so that losses do not depend on the number of
ranks. Ranks wait for each other in every iteration, as those of a real training do. Rank 0 saves weights and step,
and logs the loss of each step.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.service.lockstep import Lockstep

from cranny.agent.job import JobAgent

BATCH, FEATURES, RATE = 32, 8, 0.05
OWN_EVERY = 25  # iterations between two checkpoints that it makes by itself
Weights = npt.NDArray[np.float64]


def train_step(weights: Weights, step: int) -> tuple[Weights, float]:
    """Return the weights after a step, and the loss before it."""
    rng = np.random.default_rng(step)
    data = rng.normal(size=(BATCH, FEATURES))
    missed = data @ (weights - np.arange(FEATURES)) + 0.01 * rng.normal(size=BATCH)
    return weights - RATE * (data.T @ missed) / BATCH, float(np.mean(missed**2))


class Training:
    """One rank."""

    def __init__(self, folder: Path, *, hang_at_request: bool) -> None:
        job, attempt = os.environ["CRANNY_JOB_ID"], os.environ["CRANNY_ATTEMPT"]
        self.folder, self.hang = folder, hang_at_request and attempt == "1"
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.attempt = int(attempt)
        self.state = folder / f"{job}.npz"
        self.losses = folder / f"{job}.losses"
        self.weights, self.step = np.zeros(FEATURES), 0
        if self.state.exists():
            with np.load(self.state) as found:
                self.weights, self.step = found["weights"], int(found["step"])
        self.agent = JobAgent(save=self.save_as_asked, batch=BATCH, first_step=self.step)
        self.lockstep = Lockstep(folder / f"{job}-{self.attempt}.steps", self.rank, self.ranks)

    def save(self, step: int) -> None:
        """Save weights and step: what was saved before stays until the new file is complete."""
        if self.rank == 0:
            draft = self.state.with_suffix(".draft")
            with draft.open("wb") as file:
                np.savez(file, weights=self.weights, step=step)
            draft.replace(self.state)

    def save_as_asked(self, step: int) -> None:
        """Save because the service asks for it; say so, and never get done where a test wants that."""
        if self.rank == 0 and self.hang:
            self.state.with_suffix(".draft").write_bytes(b"half a checkpoint")
            self._say({"saving": step, "pid": os.getpid()})
            time.sleep(3600.0)
        self.save(step)
        self._say({"saved": step})

    def run(self) -> None:
        """Train until a signal ends the process."""
        while True:
            self.agent.step()
            self.weights, loss = train_step(self.weights, self.step)
            self._say({"step": self.step, "loss": loss})
            self.step += 1
            time.sleep(0.02 / self.ranks)  # more ranks take less time
            self.lockstep.wait(self.step)
            if self.step % OWN_EVERY == 0:
                self.save(self.step)
                self.agent.saved(self.step)

    def _say(self, said: dict[str, float]) -> None:
        if self.rank == 0:
            with self.losses.open("a") as file:
                file.write(json.dumps({"attempt": self.attempt, "ranks": self.ranks, **said}) + "\n")


if __name__ == "__main__":
    Training(Path(sys.argv[1]), hang_at_request="--hang" in sys.argv).run()
