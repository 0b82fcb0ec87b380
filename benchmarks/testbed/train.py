"""A training job of the testbed: it computes for a while, that is sleeps, and exchanges gradients by gloo.

    python train.py FILE --compute-s 0.2 --gradient-mb 2.5

It trains until it is stopped. Rank 0 writes a line for every iteration to FILE: when the one before it ended, when
it started, and when it began and ended to exchange gradients.
"""

import argparse
import os
import random
import time
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cranny.agent.torch

BYTES_PER_FLOAT = 4


class Weights(torch.nn.Module):
    """A model that is nothing but weights."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(count))

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        return (self.weights * factor).mean()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--compute-s", type=float, required=True)
    parser.add_argument("--gradient-mb", type=float, required=True)
    parser.add_argument("--jitter", type=float, default=0.0, help="standard deviation, as a share of computing")
    parser.add_argument("--grows-by-s", type=float, default=0.0, help="computing takes so much longer in the end")
    parser.add_argument("--grows-for-s", type=float, default=1.0, help="until when it grows, evenly")
    parser.add_argument("--start-file", default="", help="training begins once it exists")
    parser.add_argument("--seed", type=int, default=0, help="of the jitter, the same for all ranks")
    return parser.parse_args()


def main() -> None:
    """Train."""
    asked = arguments()
    with suppress(PermissionError):  # so that other work of this machine does not disturb; threads inherit it
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Weights(round(asked.gradient_mb * 1e6 / BYTES_PER_FLOAT)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job = cranny.agent.torch.connect(model)
    if asked.start_file:
        if dist.get_rank() == 0:
            Path(f"{asked.file}.ready").touch()
        while not Path(asked.start_file).exists():
            time.sleep(0.002)
    draw = random.Random(asked.seed)  # noqa: S311 - jitter
    factor = torch.ones(())
    first_s = time.monotonic()
    with Path(asked.file).open("a" if dist.get_rank() == 0 else "r", encoding="ascii") as file:
        while True:
            ended_s = time.monotonic()
            job.step()
            started_s = time.monotonic()
            grown_s = asked.grows_by_s * min(1.0, (time.monotonic() - first_s) / asked.grows_for_s)
            time.sleep((asked.compute_s + grown_s) * max(0.0, draw.gauss(1.0, asked.jitter)))
            computed_s = time.monotonic()
            optimizer.zero_grad()
            model(factor).backward()
            exchanged_s = time.monotonic()
            optimizer.step()
            if file.writable():
                file.write(f"{ended_s:.6f} {started_s:.6f} {computed_s:.6f} {exchanged_s:.6f}\n")
                file.flush()


if __name__ == "__main__":
    main()
