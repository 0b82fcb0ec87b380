"""Options that cut a window out of a log: `--from`, `--to`, `--zone` and `--warm-up`."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cranny.cli.options import option
from cranny.model.errors import InputError

if TYPE_CHECKING:
    from cranny.traces.trace import Trace

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
FROM_HELP = "Begin of the time to look at: a date, or 2d from the log's first submission; jobs are cut there."
TO_HELP = "End of the time to look at, likewise."
ZONE_HELP = "Time zone of dates that name none, in the log and here, such as Europe/Berlin."
WARM_UP_HELP = "Time from the begin in which waits do not count, such as 6h."


def length_s(text: str, option: str) -> float:
    """Read a length of time such as 90, 90m, 3h or 2d."""
    time = _length(text)
    if time is None:
        raise InputError(f"{option}: must be a time such as 3600, 90m, 3h, 2d or 1w, not {text!r}")
    return time


def _length(text: str) -> float | None:
    time = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([smhdw]?)", text.strip())
    return None if time is None else float(time[1]) * UNITS_S[time[2]]


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """The time of a log to look at, as it is typed."""

    start: Annotated[str | None, option("--from", FROM_HELP, metavar="TIME")] = None
    end: Annotated[str | None, option("--to", TO_HELP, metavar="TIME")] = None
    zone: Annotated[str | None, option("--zone", ZONE_HELP, metavar="ZONE")] = None
    warm_up: Annotated[str | None, option("--warm-up", WARM_UP_HELP, metavar="TIME")] = None

    def cut(self, trace: "Trace") -> "Trace":
        """Cut the window out of a trace; leave it as it is if none of the options is given."""
        from cranny.traces.window import cut

        if self.start is self.end is self.warm_up is None:
            return trace
        from_s, to_s = self._edge_s(self.start, trace, "--from"), self._edge_s(self.end, trace, "--to")
        warm_up_s = 0.0 if self.warm_up is None else length_s(self.warm_up, "--warm-up")
        return cut(trace, from_s, to_s, warm_up_s)

    def _edge_s(self, text: str | None, trace: "Trace", option: str) -> float | None:
        """Read a date, or a length of time, as seconds from the trace's time zero."""
        from cranny.traces.zones import parse_moment

        since_s = None if text is None else _length(text)
        if text is None or since_s is not None:
            return since_s
        try:
            moment_s = parse_moment(text, self.zone)
        except InputError as error:
            raise InputError(f"{option}: {error}") from None
        if trace.zero_epoch_s is None:
            raise InputError(
                f"{option}: the times of {trace.name} have no date; give a time such as 2d from its first"
            )
        return moment_s - trace.zero_epoch_s
