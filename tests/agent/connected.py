"""A script for two ranks with a channel: they divide samples unequally, save when asked, and write it all down.

    python -m tests.agent.jobs FOLDER tests/agent/connected.py

The test writes the control before it starts; a rank sleeps in proportion to its samples, as slower GPUs would.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cranny.agent.torch
from cranny.channel.control import AGREED, CheckpointRequest, Control
from tests.agent import CONNECTED_BATCH, CONNECTED_STEPS, SLEEP_S, SPEEDS, TOKEN

DATASET = torch.arange(5 * CONNECTED_BATCH, dtype=torch.float32)


def train(rank: int, folder: Path) -> dict[str, object]:
    """Train; return what was done, with the gradients of each iteration."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(1, 4)
    model = DistributedDataParallel(layer)
    saved: list[int] = []
    job = cranny.agent.torch.connect(model, save=saved.append, batch=CONNECTED_BATCH, seed=3)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(DATASET), batch_sampler=job.sampler(DATASET.tolist())
    )
    done: list[dict[str, object]] = []
    while len(done) < CONNECTED_STEPS:
        for (batch,) in loader:
            began_s = time.perf_counter()
            job.step()
            loss = model(batch[:, None] / len(DATASET)).square().mean()
            time.sleep(SLEEP_S * len(batch) / SPEEDS[rank])
            layer.zero_grad()
            alone_s = time.perf_counter() - began_s
            job.scale(loss).backward()
            done.append(
                {
                    "samples": batch.tolist(),
                    "own": job.samples,
                    "gradient": layer.weight.grad.flatten().tolist(),  # type: ignore[union-attr]
                    "alone_s": alone_s,  # until it depends on the other rank
                    "took_s": time.perf_counter() - began_s,
                }
            )
            ask(len(done), rank, folder)
    job.close()
    return {"done": done, "saved": saved}


def ask(step: int, rank: int, folder: Path) -> None:
    """Play the service: ask for unequal shares, and later for a checkpoint as well."""
    when = {CONNECTED_STEPS // 3: None, CONNECTED_STEPS // 2: "moved"}
    if rank == 0 and step in when:
        shares, reason = tuple(each / sum(SPEEDS) for each in SPEEDS), when[step]
        request = None if reason is None else CheckpointRequest(1, time.time() + 60.0, reason)  # noqa: TID251
        Control(step, shares=shares, checkpoint=request).write(folder)


if __name__ == "__main__":
    channel = Path(sys.argv[1]) / "channel"
    channel.mkdir(exist_ok=True)
    os.environ |= {"CRANNY_CHANNEL": str(channel), "CRANNY_CHANNEL_TOKEN": TOKEN}
    dist.init_process_group("gloo")
    said = train(
        dist.get_rank(), channel
    )  # a function of its own, so that the model is gone: see docs/use/torch.md
    said["agreed"] = json.loads((channel / AGREED).read_text(encoding="ascii"))
    (Path(sys.argv[1]) / f"said{dist.get_rank()}.json").write_text(json.dumps(said), encoding="utf-8")
    dist.destroy_process_group()
