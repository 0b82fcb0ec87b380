"""A training that sleeps instead of computing: run as a process by tests, without PyTorch.

In every iteration a rank sleeps for as long as its samples take on its GPU, waits for the other ranks, and sleeps
for as long as gradients are exchanged. It talks to the service through the agent, which measures that.
"""

import argparse
import json
import os
import time
from pathlib import Path

from tests.service.lockstep import Lockstep

from cranny.agent.job import JobAgent
from cranny.channel.control import Control

SPEED = 400.0  # samples a second on a GPU whose speed is not given


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="for the state of the training")
    parser.add_argument("--batch", type=int, default=8, help="samples of all ranks in an iteration")
    parser.add_argument("--speeds", type=json.loads, default={}, help="samples a second by machine")
    parser.add_argument("--exchange-s", type=float, default=0.0, help="what an exchange of gradients takes")
    parser.add_argument("--gradient-bytes", type=float, default=None, help="that it says to exchange")
    return parser.parse_args()


def main() -> None:
    """Train until a signal ends the process."""
    asked = arguments()
    folder, job_id, attempt = asked.folder, os.environ["CRANNY_JOB_ID"], os.environ["CRANNY_ATTEMPT"]
    channel, machine = Path(os.environ["CRANNY_CHANNEL"]), os.environ["CRANNY_MACHINE"]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    state = folder / f"state-{job_id}"

    def save(step: int) -> None:
        if rank == 0:
            draft = state.with_suffix(".new")
            draft.write_text(str(step))
            draft.replace(state)
            control = Control.read(channel)
            reason = control.checkpoint.reason if control is not None and control.checkpoint is not None else ""
            with (folder / "saved").open("a") as file:
                file.write(f"{job_id} {attempt} {ranks} {step} {reason}\n")

    step = int(state.read_text()) if state.exists() else 0
    agent = JobAgent(save=save, batch=asked.batch, first_step=step, gradient_bytes=asked.gradient_bytes)
    lockstep = Lockstep(folder / f"{job_id}-{attempt}.steps", rank, ranks)
    while True:
        agent.step()
        time.sleep(agent.samples / asked.speeds.get(machine, SPEED))
        computed_s = time.time()  # noqa: TID251 - the clock of the agent
        step += 1
        lockstep.wait(step)
        time.sleep(asked.exchange_s)
        agent.communicated(computed_s, time.time())  # noqa: TID251


if __name__ == "__main__":
    main()
