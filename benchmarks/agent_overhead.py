"""What the agent adds to a real training on one GPU: no agent, reporting, and reporting while paced, side by side.

    PYTHONPATH=src python benchmarks/agent_overhead.py

needs PyTorch and nothing else. Four copies of a transformer of 134 million parameters, two of them without an
agent, train with bf16, NCCL and `DistributedDataParallel` in one process, in blocks of iterations that alternate,
so that what a machine does meanwhile meets all of them alike. Copies differ in speed by where they lie in memory,
so `--first` says which one is made first: run it once for each and compare the medians. It prints, as JSON, the
median iteration of each, and the ratio to the mean of those without an agent with a 95 % interval (bootstrap over
rounds of blocks). The paced one gets, through its channel, the median of the reporting one as its period, with
`--slack` (0.03 of it) on top; `work` is the ratio of what its iterations take without waits, by Python's clock.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import cranny.agent.torch
from cranny.agent.torch import TorchAgent
from cranny.channel.control import Control, Pace

NONE, REPORTING, AGAIN, PACED = "none", "reporting", "none again", "paced"
DROPPED = 4  # iterations of a block that still see the block before, or wait for their first slot
BOOTSTRAPS = 2000


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Attend to earlier tokens, then mix channels."""
        size, length, width = states.shape
        parts = self.project(self.before(states)).view(size, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.merge(mixed.transpose(1, 2).reshape(size, length, width))
        wide: torch.Tensor = self.narrow(functional.gelu(self.widen(self.between(states))))
        return states + wide


@dataclass
class Variant:
    """One of the trainings that are compared."""

    name: str
    iterate: Callable[[], None]
    agent: TorchAgent | None
    channel: Path | None
    medians_ms: list[float] = field(default_factory=list)  # of each round
    works_ms: list[float] = field(default_factory=list)  # the same without waits, where an agent measures that
    times_ms: list[float] = field(default_factory=list)


def variant(name: str, given: argparse.Namespace, device: torch.device, folder: Path) -> Variant:
    """Make a model, and its agent if it has one."""
    torch.manual_seed(0)
    layers = [Block(given.width, given.width // 64) for _ in range(given.layers)]
    plain = nn.Sequential(nn.Embedding(given.words, given.width), *layers, nn.Linear(given.width, given.words))
    model = DistributedDataParallel(plain.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    tokens = torch.randint(given.words, (given.batch, given.length + 1), device=device)
    agent, channel = None, None
    if name not in (NONE, AGAIN):
        channel = folder / name
        channel.mkdir(mode=0o700)
        os.environ["CRANNY_CHANNEL"], os.environ["CRANNY_CHANNEL_TOKEN"] = str(channel), "benchmark"
        agent = cranny.agent.torch.connect(model, batch=given.batch)

    def iterate() -> None:
        if agent is not None:
            agent.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return Variant(name, iterate, agent, channel)


def block(each: Variant, iterations: int, device: torch.device) -> list[float]:
    """Train for some iterations; return what each of them took on the device, in ms, from start to start."""
    if device.type != "cuda":
        moments = []
        for _ in range(iterations + 1):
            moments.append(1e3 * time.perf_counter())
            each.iterate()
        return [later - before for before, later in pairwise(moments)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]  # type: ignore[no-untyped-call]
    for event in events:
        event.record()
        each.iterate()
    torch.cuda.synchronize()
    return [before.elapsed_time(later) for before, later in pairwise(events)]


def interval(ratios: Sequence[float]) -> list[float]:
    """Return a 95 % interval of the median of ratios, one of each round."""
    drawn = random.Random(0)  # noqa: S311 - to draw rounds again
    medians = sorted(median(drawn.choices(ratios, k=len(ratios))) for _ in range(BOOTSTRAPS))
    return [medians[int(0.025 * BOOTSTRAPS)], medians[int(0.975 * BOOTSTRAPS) - 1]]


def ratio(name: str, medians_ms: Sequence[float], without_ms: Sequence[float]) -> dict[str, Any]:
    """Return the median ratio to iterations without an agent over rounds, and its interval."""
    ratios = [one / other for one, other in zip(medians_ms, without_ms, strict=True)]
    return {name: median(ratios), f"{name}_95": interval(ratios)}


def measure(given: argparse.Namespace, device: torch.device, folder: Path) -> dict[str, Any]:
    """Let the variants take turns, and compare them."""
    names = (NONE, REPORTING, AGAIN, PACED)
    made = {name: variant(name, given, device, folder) for name in names[given.first :] + names[: given.first]}
    variants = [made[name] for name in names]
    none, reporting, again, paced = variants
    for each in variants:
        block(each, given.block, device)
    learned_s = (1.0 + given.slack) * median(block(reporting, 2 * given.block, device)[DROPPED:]) / 1e3
    if paced.channel is not None:
        Control(1, pace=Pace(learned_s, 0.0, 0.0)).write(paced.channel)
    while paced.agent is not None and paced.agent.pacer.schedule.period_s == 0.0:  # until it is agreed
        paced.iterate()
    end_s, rounds = time.monotonic() + given.seconds * len(variants), 0
    while time.monotonic() < end_s or rounds < 3:
        for place in range(len(variants)):  # another one begins in each round
            each = variants[(place + rounds) % len(variants)]
            times_ms = block(each, given.block, device)[DROPPED:]
            each.medians_ms.append(median(times_ms))
            each.times_ms += times_ms
            if each.agent is not None:
                past = each.agent.pacer.past[-len(times_ms) :]
                each.works_ms.append(1e3 * median(iteration.work_s for iteration in past))
        rounds += 1
    found: dict[str, Any] = {"rounds": rounds, "period_ms": 1e3 * learned_s}
    without_ms = [sum(both) / 2 for both in zip(none.medians_ms, again.medians_ms, strict=True)]
    for each in variants:
        found[each.name] = {
            "iterations": len(each.times_ms),
            "median_ms": median(each.times_ms),
            **ratio("ratio", each.medians_ms, without_ms),
        }
    found[PACED] |= ratio("work", paced.works_ms, without_ms)
    found[PACED]["over_period"] = median(paced.times_ms) / (1e3 * learned_s)
    found[PACED]["report"] = str(paced.agent.report()) if paced.agent is not None else ""
    for each in variants:
        if each.agent is not None:
            each.agent.close()
    return found


def main() -> None:
    """Measure on a GPU, or on the CPU to try this script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (("layers", 12), ("width", 768), ("words", 32_000), ("batch", 32), ("length", 1024)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each variant")
    parser.add_argument("--block", type=int, default=40, help="iterations until another variant has its turn")
    parser.add_argument("--slack", type=float, default=0.03, help="share of an iteration added to the period")
    parser.add_argument("--first", type=int, default=0, help="the copy that is made first, 0 to 3")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}
    with tempfile.TemporaryDirectory() as name:
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo", init_method=f"file://{name}/group", rank=0, world_size=1
        )
        found = measure(given, device, Path(name))
        dist.destroy_process_group()
    machine = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    facts = {"device": machine, "torch": torch.__version__, "arguments": vars(given), **found}
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
