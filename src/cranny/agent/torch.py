"""The agent of a PyTorch training: one line before its loop, and one in it.

    job = cranny.agent.torch.connect(model, save=save, batch=256)
    for step in range(job.first_step or 0, steps):
        job.step()
        ...

It is the agent of `cranny.agent.job`. Here it also measures when gradients are exchanged, as the
agents of CASSINI (NSDI'24) do: on a CPU by a communication hook of `DistributedDataParallel`; on a GPU from the
first gradient that is ready to the optimizer's step, which waits for all exchanges. There a communication hook in
Python would cost more than all the rest of the agent.

Python runs ahead of a GPU: an iteration that Python starts on time would run when the GPU is done with those
before. So with a schedule the agent waits for the GPU before it looks at the clock: until the last gradients are
exchanged, if it measures that, or rather until a little before, since Python needs some time to start the next
iteration on the GPU, which would be idle meanwhile. It knows that moment from the first gradient of the iteration,
and from how long exchanges take at least. Without a schedule it does not wait: times on the GPU are marked by
events, of some iterations only, and read when these are over. With a channel Python may then be `LEAD` iterations
ahead of the GPU and no more, so that ranks do not get far from each other (`cranny.agent.agreement`).
"""

import atexit
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

try:
    import torch
except ModuleNotFoundError as error:
    from cranny.model.errors import MissingExtraError

    raise MissingExtraError("cranny.agent.torch", error.name) from None
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cranny.agent import pacing
from cranny.agent.job import JobAgent, Save
from cranny.agent.pacing import CommunicationTimes, Iteration, PacingReport
from cranny.agent.pacing_schedule import PacingSchedule

__all__ = ["Iteration", "PacingReport", "PacingSchedule", "TorchAgent", "TorchPacer", "connect"]

LEAD = 2  # iterations by which Python may be ahead of a GPU
EVERY = 8  # iterations of which one is measured on a GPU: events cost some microseconds each
FIRST = 3  # iterations that are all measured
AHEAD_S = 0.002  # before the end of an exchange: when Python is to start the next iteration of a paced job

CommHook = Callable[[Any, GradBucket], Future[torch.Tensor]]


@dataclass(slots=True)
class _Exchange:
    """The exchange of a model's gradients on a GPU in the iteration that runs."""

    begun: bool = False
    first_ready: torch.cuda.Event | None = None
    over: torch.cuda.Event | None = None


class _Marks(NamedTuple):
    """An iteration on a GPU whose times are not known yet."""

    number: int
    zero: torch.cuda.Event  # its start
    exchanges: list[tuple[torch.cuda.Event, torch.cuda.Event]]

    def over(self) -> bool:
        """Return whether all of its exchanges are over."""
        return all(_is_past(end) for _, end in self.exchanges)

    def communication(self) -> CommunicationTimes:
        """Return when it communicated."""
        times = [[self.zero.elapsed_time(mark) / 1e3 for mark in pair] for pair in self.exchanges]
        return CommunicationTimes.of([(start_s, end_s) for start_s, end_s in times], 0.0)


class TorchPacer(pacing.Pacer):
    """Keeps a PyTorch training loop to its schedule: call `step` as every iteration starts, in every worker."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._exchanges: list[_Exchange] = []  # one for each model on a GPU that is listened to
        self._timed = False  # whether the exchanges of the iteration that runs are measured on the GPU
        self._zero: torch.cuda.Event | None = None  # its start there
        self._unread: deque[_Marks] = deque(maxlen=EVERY)
        self._exchanged_s: deque[float] = deque(maxlen=pacing.WINDOW)  # from the first gradient to the optimizer
        super().__init__(*args, **settings)

    def start(self) -> float:
        """Start an iteration after the end of another one; return the seconds waited."""
        waited_s = super().start()
        if self._exchanges:
            self._timed = self._iterations < FIRST or self._iterations % EVERY == 0
            self._zero = _event() if self._timed else None
        return waited_s

    def listen(self, model: DistributedDataParallel, hook: CommHook | None = None, state: object = None) -> None:
        """Measure when a model exchanges gradients, by a hook or as it does without one; call it before training.

        `report` then has the median start and end of the communication phase of an iteration.
        """
        trained = _trained(model)
        if trained and trained[-1].is_cuda:
            if hook is not None:
                model.register_comm_hook(state, hook)
            self._listen_on_gpu(trained[-1])
        else:
            self._listen_on_cpu(model, hook, state)

    def _listen_on_cpu(self, model: DistributedDataParallel, hook: CommHook | None, state: object) -> None:
        """Measure the exchange of each bucket by the clock."""
        exchange: CommHook = hook or allreduce_hook
        if hook is None:  # without a group it would ask all workers, also those that do not train this model
            state = state or model.process_group

        def timed(state: object, bucket: GradBucket) -> Future[torch.Tensor]:
            start_s = self._clock()

            def done(future: Future[torch.Tensor]) -> torch.Tensor:
                self.communicated(start_s, self._clock())
                return future.value()

            return exchange(state, bucket).then(done)

        model.register_comm_hook(state, timed)

    def _listen_on_gpu(self, last: torch.nn.Parameter) -> None:
        """Mark the first gradient that is ready, mostly that of the last parameter, and the optimizer's step."""
        exchange = _Exchange()
        self._exchanges.append(exchange)

        def ready(_: torch.Tensor) -> None:
            exchange.begun = True
            # Of several backward passes in an iteration, the last one is followed by an exchange.
            if self._timed or self.paced:
                exchange.first_ready = _event(blocking=self.paced)

        def before_optimizer(*_: object) -> None:
            if exchange.begun and exchange.over is None and (self._timed or self.paced):
                exchange.over = _event(blocking=self.paced)

        last.register_post_accumulate_grad_hook(ready)  # type: ignore[no-untyped-call]
        register_optimizer_step_pre_hook(before_optimizer)

    def _synchronize(self) -> None:
        """Wait for the GPU if the start of an iteration matters; otherwise let Python run ahead of it."""
        if self.paced and _on_gpu():
            self._wait_for_gpu()
        if self._zero is not None:
            marks = [(each.first_ready, each.over) for each in self._exchanges]
            pairs = [(first, over) for first, over in marks if first is not None and over is not None]
            if pairs:
                self._unread.append(_Marks(self._iterations + 1, self._zero, pairs))
        for each in self._exchanges:
            each.begun, each.first_ready, each.over = False, None, None

    def _wait_for_gpu(self) -> None:
        """Wait until the exchange of gradients is nearly over."""
        last = next((each for each in reversed(self._exchanges) if each.over is not None), None)
        if last is None or last.over is None:
            torch.cuda.synchronize()
            return
        first_ready = last.first_ready
        if first_ready is None or not self._exchanged_s or _is_past(first_ready):  # since when is not known then
            last.over.synchronize()
        else:
            first_ready.synchronize()
            self._sleep(max(0.0, min(self._exchanged_s) - AHEAD_S))

    def _end(self, timer_s: float) -> None:
        """Note the end of an iteration, and the communication of those that are over on the GPU by now."""
        super()._end(timer_s)
        while self._unread and self._unread[0].over():
            marks = self._unread.popleft()
            first_ready, over = marks.exchanges[-1]
            self._exchanged_s.append(first_ready.elapsed_time(over) / 1e3)
            self._hear(marks.number, marks.communication())


class TorchAgent(JobAgent):
    """The agent of a rank that trains with PyTorch; made by `connect`."""

    _started: deque[torch.cuda.Event] | None = None  # the last iterations, where they start on the GPU

    def step(self) -> float:
        """Start an iteration; return the seconds that it waited for its slot."""
        if self.connected and self.lead and _on_gpu() and not self.pacer.paced:
            self._keep_lead()
        return super().step()

    def _keep_lead(self) -> None:
        """Wait for the GPU if it is further behind Python than other ranks may count on."""
        if self._started is None:
            self._started = deque()
        if len(self._started) == self.lead:
            self._started.popleft().synchronize()
        self._started.append(_event(blocking=True))


def connect(
    model: torch.nn.Module,
    *,
    save: Save | None = None,
    batch: int | None = None,
    first_step: int | None = None,
    seed: int = 0,
    hook: CommHook | None = None,
    state: object = None,
) -> TorchAgent:
    """Return the agent of this rank: call its `step` at the start of every iteration.

    A model of `DistributedDataParallel` is listened to, with `hook` and `state` as the communication hook that it
    is to have, if any. The other arguments are those of `JobAgent`. Call it on all ranks, once there is a process
    group.
    """
    pacer = TorchPacer.from_env()
    there = dist.is_available() and dist.is_initialized()
    agent = TorchAgent(
        save=save,
        batch=batch,
        first_step=first_step,
        seed=seed,
        rank=dist.get_rank() if there else None,
        ranks=dist.get_world_size() if there else None,
        gradient_bytes=float(sum(each.numel() * each.element_size() for each in _trained(model))) or None,
        lead=LEAD if any(each.is_cuda for each in _trained(model)) else 0,
        pacer=pacer,
    )
    if isinstance(model, DistributedDataParallel):
        try:
            pacer.listen(model, hook, state)
        except RuntimeError as error:  # it has a hook already
            agent.warn(f"communication is not measured: {error}")
    atexit.register(agent.close)
    return agent


def _trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters whose gradients are exchanged."""
    return [each for each in model.parameters() if each.requires_grad]


def _on_gpu() -> bool:
    """Return whether this process uses a GPU."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _event(*, blocking: bool = False) -> torch.cuda.Event:
    """Record an event after all work queued so far in this stream."""
    event = torch.cuda.Event(enable_timing=True, blocking=blocking)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _is_past(event: torch.cuda.Event) -> bool:
    """Return whether the GPU has reached an event."""
    return bool(event.query())  # type: ignore[no-untyped-call]
