"""What a rank reports of its iterations: sums over some of them in a row."""

from statistics import fmean, median

from cranny.agent.pacing import CommunicationTimes, Iteration, Pacer
from cranny.channel.report import Record


class Measurement:
    """Iterations since the last record."""

    def __init__(self, gradient_bytes: float | None = None) -> None:
        self._gradient_bytes = gradient_bytes
        self._records = 0
        self._heard: list[CommunicationTimes] = []  # not of all iterations where each of them would cost too much
        self._clear()

    def _clear(self) -> None:
        self.iterations = 0
        self._wall_s = self._waited_s = self._samples = 0.0
        del self._heard[:-1]  # the latest one stands for iterations of which none is known

    def add(self, iteration: Iteration, samples: float) -> None:
        """Count an iteration that has ended."""
        self.iterations += 1
        self._wall_s += iteration.waited_s + iteration.work_s
        self._waited_s += iteration.waited_s
        self._samples += samples

    def record(self, pacer: Pacer, step: int, now_s: float) -> Record:
        """Return the sums so far as of a step that is done, and begin again."""
        if pacer.heard:
            self._heard = list(pacer.heard)
            pacer.heard.clear()
        self._records += 1
        times, heard = self.iterations, self._heard
        work_s = self._wall_s - self._waited_s
        record = Record(
            number=self._records,
            at_s=now_s,
            step=step,
            iterations=times,
            wall_s=self._wall_s,
            waited_s=self._waited_s,
            compute_s=max(0.0, work_s - times * fmean(each.alone_s for each in heard)) if heard else work_s,
            comm_s=min(work_s, times * fmean(each.busy_s for each in heard)) if heard else 0.0,
            comm_start_s=max(0.0, median(each.start_s for each in heard)) if heard else None,
            comm_end_s=max(0.0, median(each.end_s for each in heard)) if heard else None,
            samples=self._samples,
            gradient_bytes=self._gradient_bytes,
            paced=pacer.paced,
            period_s=pacer.kept_period_s,
        )
        self._clear()
        return record
