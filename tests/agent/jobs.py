"""Real training with PyTorch: two jobs of two processes each, gloo on the loopback.

    python -m tests.agent.jobs FOLDER

The jobs share a link: gradients are exchanged by gloo, but their parts pass one after the other, each for PART_S,
in the order in which they come. So two jobs that communicate at the same time take twice as long for it.

    python -m tests.agent.jobs FOLDER SCRIPT

runs a script in two processes instead, as torchrun would.
"""

import fcntl
import gc
import json
import os
import runpy
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # what the first optimizer loads; here it is loaded once, before workers are forked
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future
from torch.multiprocessing import start_processes  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

import cranny.agent.torch
from tests.agent import APART, COMPUTE_S, LONG_S, PART_S, PARTS, PERIOD_S, TOGETHER, WORKERS


def pass_link(link: Path) -> None:
    """Wait in line at the link, and until it has carried one part."""
    with link.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done_s = max(time.monotonic(), float(file.read() or 0)) + PART_S
        file.seek(0)
        file.write(f"{done_s:030.9f}")
    time.sleep(max(0.0, done_s - time.monotonic()))


def reduce_over(link: Path | None, bucket: GradBucket) -> Future[torch.Tensor]:
    """Exchange gradients part by part; the worker with a link waits for it, and the others for that worker."""
    gradients = bucket.buffer().div_(WORKERS)
    for part in gradients.chunk(PARTS):
        if link is not None:
            pass_link(link)
        dist.all_reduce(part)
    future: Future[torch.Tensor] = Future()
    future.set_result(gradients)
    return future


def train(number: int, folder: Path) -> None:
    """Train, and write down how the iterations went."""
    job, rank = divmod(number, WORKERS)
    dist.init_process_group("gloo", init_method=f"file://{folder}/job{job}", rank=rank, world_size=WORKERS)
    said = iterations(number, folder)  # a function of its own, so that the model is gone: see docs/use/torch.md
    (folder / f"said{number}.json").write_text(json.dumps(said), encoding="utf-8")
    dist.destroy_process_group()


def iterations(number: int, folder: Path) -> dict[str, object]:
    """Train at the same time as the other job, then half a period apart; return how the iterations went."""
    job, rank = divmod(number, WORKERS)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pacer = cranny.agent.torch.TorchPacer(patience=1.0, learn=False)  # on a busy machine, too
    pacer.listen(model, reduce_over, folder / "link" if rank == 0 else None)

    def iterate() -> None:
        pacer.step()
        time.sleep(COMPUTE_S)
        optimizer.zero_grad()
        model(torch.rand(8, 256)).square().mean().backward()
        optimizer.step()

    iterate()  # the first one sets things up
    (folder / f"ready{number}").touch()
    while not all((folder / f"ready{each}").exists() for each in range(2 * WORKERS)):
        time.sleep(0.005)
    for period_s, shift_s, times in ((LONG_S, 0.0, TOGETHER), (PERIOD_S, job * PERIOD_S / 2, APART)):
        pacer.update(period_s, shift_s)
        for _ in range(times):
            iterate()
    pacer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return {
        "iterations": pacer.past,
        "adjustments": pacer.report().adjustments,
        "weights": float(weights.double().sum()),
    }


def destroy(end: Callable[[], None]) -> None:
    """End a process group, unless a model still uses it: then the process may hang (torch.md says why)."""
    assert not any(type(each) is DistributedDataParallel for each in gc.get_objects())
    end()


def run(number: int, folder: Path, *, script: str, port: int) -> None:
    """Run a script as a worker of a job."""
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(WORKERS)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.destroy_process_group = partial(destroy, dist.destroy_process_group)
    sys.argv = [script, str(folder)]
    runpy.run_path(script, run_name="__main__")


def main() -> None:
    """Start the workers, and wait for them; forked, so that PyTorch is loaded once."""
    folder, scripts = Path(sys.argv[1]), sys.argv[2:]
    (folder / "link").touch()
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    work, workers = (partial(run, script=scripts[0], port=port), WORKERS) if scripts else (train, 2 * WORKERS)
    start_processes(work, (folder,), nprocs=workers, start_method="fork")  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
