"""A script for two workers: models that are listened to train beside twins that are not, and write down how.

A model may exchange gradients with all workers, or with some; here once with both, and once with none.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cranny.agent.torch
from tests.agent import ITERATIONS, PAUSE_S


def weights(model: torch.nn.Module) -> list[float]:
    """Return what a model has learnt."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist()


def iterations(rank: int) -> dict[str, object]:
    """Train, every worker with data of its own; return what was learnt and heard."""
    groups = [dist.new_group([each]) for each in range(dist.get_world_size())]
    pacer = cranny.agent.torch.TorchPacer()
    pairs = []
    for group in (None, groups[rank]):
        twins = []
        for _ in range(2):
            torch.manual_seed(0)
            twins.append(DistributedDataParallel(torch.nn.Linear(8, 8), process_group=group))
        pacer.listen(twins[0])
        pairs.append(twins)
    models = [model for twins in pairs for model in twins]
    optimizer = torch.optim.SGD([parameter for model in models for parameter in model.parameters()], lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in range(ITERATIONS):
        pacer.step()
        batch = torch.rand(4, 8)
        optimizer.zero_grad()
        for model in models:
            model(batch).square().mean().backward()
            time.sleep(PAUSE_S)
        optimizer.step()
    pacer.step()
    return {
        "pairs": [[weights(model) for model in twins] for twins in pairs],
        "talks": [each.communication and each.communication[:2] for each in pacer.past],
        "works_s": [each.work_s for each in pacer.past],
    }


if __name__ == "__main__":
    dist.init_process_group("gloo")
    said = iterations(dist.get_rank())  # a function of its own, so that the models are gone: see docs/use/torch.md
    (Path(sys.argv[1]) / f"said{dist.get_rank()}.json").write_text(json.dumps(said), encoding="utf-8")
    dist.destroy_process_group()
