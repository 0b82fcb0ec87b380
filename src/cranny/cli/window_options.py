"""Options that cut a window out of a log: `--from`, `--to`, `--zone` and `--warm-up`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cranny.cli.options import named, option
from cranny.model.errors import InputError

if TYPE_CHECKING:
    from cranny.traces.trace import Trace

FROM_HELP = "Begin of the time to look at: a date, or 2d from the log's first submission; jobs are cut there."
TO_HELP = "End of the time to look at, likewise."
ZONE_HELP = "Time zone of dates that name none, in the log and here, and of those shown, such as Europe/Berlin."
WARM_UP_HELP = "Time from the begin in which nothing is measured, such as 6h."


def length_s(text: str, option: str) -> float:
    """Read a length of time such as 90, 90m, 3h or 2d."""
    from cranny.traces.zones import A_LENGTH, parse_length_s

    time = parse_length_s(text)
    if time is None:
        raise InputError(f"{option}: {A_LENGTH}, not {text!r}")
    return time


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """The time of a log to look at, as it is typed."""

    start: Annotated[str | None, option("--from", FROM_HELP, metavar="TIME")] = None
    end: Annotated[str | None, option("--to", TO_HELP, metavar="TIME")] = None
    zone: Annotated[str | None, option("--zone", ZONE_HELP, metavar="ZONE")] = None
    warm_up: Annotated[str | None, option("--warm-up", WARM_UP_HELP, metavar="TIME")] = None

    def cut(self, trace: "Trace") -> "Trace":
        """Cut the window out of a trace; leave it as it is if none of the options is given."""
        from cranny.traces.window import window

        with named("from", "to", "warm-up"):
            return window(trace, self.start, self.end, self.zone, self.warm_up or 0.0)
