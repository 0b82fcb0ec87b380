"""Pacing of PyTorch training loops, and measurement of their communication.

    pacer = cranny.agent.torch.TorchPacer.from_env()
    for batch in loader:
        pacer.step()
        ...

The agent is that of `cranny.agent.pacing`. Here it waits for the GPU before it looks at the clock, since Python
runs ahead of the GPU: an iteration that Python starts on time would run when the GPU is done with those before. It
also measures when gradients are exchanged, which is how the paper's agents detect communication.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from cranny.agent import pacing
from cranny.agent.pacing import Iteration, PacingReport, PacingSchedule

__all__ = ["Iteration", "PacingReport", "PacingSchedule", "TorchPacer"]

Mark = float | torch.cuda.Event  # a moment: by the clock, or on a GPU
CommHook = Callable[[Any, GradBucket], Future[torch.Tensor]]


class TorchPacer(pacing.Pacer):
    """Keeps a PyTorch training loop to its schedule: call `step` as every iteration starts, in every worker."""

    # Start and end of the exchange of each bucket of gradients.
    _bucket_times: list[tuple[Mark, Mark]] | None = None
    _zero: tuple[float, torch.cuda.Event] | None = None  # the start of the iteration, by the clock and on the GPU

    def step(self) -> float:
        """Start an iteration: wait if it is due later; return the seconds waited."""
        waited_s = super().step()
        if self._bucket_times is not None and _on_gpu():
            self._zero = (self._clock(), _event())
        return waited_s

    def listen(self, model: DistributedDataParallel, hook: CommHook | None = None, state: object = None) -> None:
        """Measure when a model exchanges gradients, by a hook or as it does without one; call it before training.

        `report` then has the median start and end of the communication phase of an iteration.
        """
        exchange: CommHook = hook or allreduce_hook
        if hook is None:  # without a group it would ask all workers, also those that do not train this model
            state = state or model.process_group
        if self._bucket_times is None:
            self._bucket_times = []
        bucket_times = self._bucket_times

        def timed(state: object, bucket: GradBucket) -> Future[torch.Tensor]:
            on_gpu = bucket.buffer().is_cuda
            start = self._mark(on_gpu=on_gpu)

            def done(future: Future[torch.Tensor]) -> torch.Tensor:
                bucket_times.append((start, self._mark(on_gpu=on_gpu)))
                return future.value()

            return exchange(state, bucket).then(done)

        model.register_comm_hook(state, timed)

    def _synchronize(self) -> None:
        """Wait for the GPU if the start of an iteration matters; otherwise let Python run ahead of it."""
        if self._bucket_times is None and not self._paced:
            return
        if _on_gpu():
            torch.cuda.synchronize()
        for start, end in self._bucket_times or ():
            self.communicated(self._moment_s(start), self._moment_s(end))
        if self._bucket_times:
            self._bucket_times.clear()

    def _mark(self, *, on_gpu: bool) -> Mark:
        """Mark this moment; on a GPU, the moment at which all work queued so far is done."""
        return _event() if on_gpu else self._clock()

    def _moment_s(self, mark: Mark) -> float:
        """Return when a mark was reached, by the clock."""
        if isinstance(mark, float):
            return mark
        now_s, zero = self._zero or (self._clock(), mark)  # before the first step there is nothing to measure from
        return now_s + float(zero.elapsed_time(mark)) / 1e3


def _on_gpu() -> bool:
    """Return whether this process uses a GPU."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _event() -> torch.cuda.Event:
    """Record an event after all work queued so far in this stream."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
