"""A training with PyTorch that can be resized and divides its batch: run as a process by tests (gloo, on the CPU).

A rank sleeps for each of its samples for as long as its GPU would compute. Rank 0 saves, and notes for every step
when it was done, its own samples, and the loss over all data.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cranny.agent.torch

SIZE, FEATURES, RATE, SEED = 72, 4, 0.2, 5
SPEED = 300.0  # samples a second on a GPU whose speed is not given


def dataset() -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples and what is to be learned of each."""
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(SIZE, FEATURES))
    return torch.from_numpy(samples), torch.from_numpy(samples @ np.arange(1.0, 1.0 + FEATURES)[:, None])


def loss_of(model: torch.nn.Module, samples: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error."""
    missed: torch.Tensor = model(samples) - wanted
    return missed.square().mean()


def new_model() -> torch.nn.Linear:
    """Return a model that has learned nothing."""
    layer = torch.nn.Linear(FEATURES, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight)
    return layer


def main() -> None:
    """Train until a signal ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="for the state of the training")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--speeds", type=json.loads, default={}, help="samples a second by machine")
    asked = parser.parse_args()
    job_id, attempt = os.environ["CRANNY_JOB_ID"], int(os.environ["CRANNY_ATTEMPT"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    state, log = asked.folder / f"{job_id}.pt", asked.folder / f"{job_id}.losses"

    def say(said: dict[str, float]) -> None:
        if rank == 0:
            with log.open("a") as file:
                file.write(json.dumps({"attempt": attempt, "ranks": ranks, **said}) + "\n")

    layer, step = new_model(), 0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        layer.load_state_dict(saved["model"])
        step = saved["step"]
    model = DistributedDataParallel(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    samples, wanted = dataset()

    def save(step: int) -> None:
        if rank == 0:
            draft = state.with_suffix(".draft")
            torch.save({"model": layer.state_dict(), "step": step}, draft)
            draft.replace(state)
        say({"saved": step})

    job = cranny.agent.torch.connect(model, save=save, batch=asked.batch, first_step=step, seed=SEED)
    sampler = job.sampler(samples.tolist())
    speed = asked.speeds.get(os.environ["CRANNY_MACHINE"], SPEED)
    while True:
        for own in sampler:
            job.step()
            time.sleep(len(own) / speed)
            optimizer.zero_grad()
            job.scale(loss_of(model, samples[own], wanted[own])).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with torch.no_grad():
                loss = float(loss_of(layer, samples, wanted))
            say({"step": step, "loss": loss, "own": len(own), "at_s": time.monotonic()})
            step += 1


if __name__ == "__main__":
    main()
