"""What a what-if found: one case for the log itself and one for each policy, and what was searched."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from cranny.analysis.whatif.details import AnswerDetails
from cranny.analysis.whatif.headroom import HOUR_S, Headroom, MachineHours
from cranny.analysis.whatif.machine_search import MachineSearch
from cranny.analysis.whatif.schema_name import SCHEMA
from cranny.analysis.whatif.waits import Waits
from cranny.model.cluster import Cluster
from cranny.report.sampling import arrival_span_s
from cranny.report.scales import duration_text
from cranny.report.table import skipping
from cranny.sim.result import Result
from cranny.traces.inspect import StepFunction, Window

JOBS_TO_START = (8, 16, 32, 64)  # GPUs of the jobs of which we say how often they could have started
DAY_H = 24.0


@dataclass(frozen=True, slots=True, eq=False)
class WhatIfCase:
    """The log itself, or its replay under one policy; None is for what the log does not say."""

    name: str
    waits: Waits | None
    headroom: Headroom | None
    machines: MachineHours | None = None
    fragmentation: float | None = None


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """What comes out if jobs that name no collective use this one."""

    collective: str
    policy: str
    mean_jct_s: float
    machine_hours: float
    mean_cross_traffic_gb: float

    @classmethod
    def of(cls, result: Result) -> Self:
        """Keep of a result what is compared."""
        settings, summary = result.settings, result.summary
        values = (summary[key] for key in ("mean_jct_s", "machine_hours", "mean_cross_traffic_gb"))
        return cls(str(settings["collective"]), str(settings["policy"]), *values)


@dataclass(frozen=True, slots=True, eq=False)
class WhatIfAnswer:
    """All that was found; `results` are the runs behind it, the log's own last if its starts are known."""

    cluster: Cluster
    window: Window
    price_per_gpu_hour: float
    cases: Sequence[WhatIfCase]  # the log itself, then the policies
    searches: Sequence[MachineSearch]
    warnings: Sequence[str]
    assumptions: Sequence[str]
    results: Sequence[Result]
    collectives: Sequence[CollectiveCase] = ()
    details: AnswerDetails | None = None  # money, groups and problem jobs

    def __repr__(self) -> str:
        from cranny.analysis.whatif.tables import answer_tables
        from cranny.report.notebook import plain_text
        from cranny.report.text_table import terminal_table

        about = f"{self.span} on {self.cluster.describe()}"
        return f"{about}\n{plain_text(terminal_table(answer_tables(self)[0]))}"

    def _repr_html_(self) -> str:
        from cranny.analysis.whatif.tables import answer_tables
        from cranny.report.notebook import sheets_html

        return sheets_html(answer_tables(self))

    @property
    def days(self) -> float:
        """Length of the window."""
        return (self.window[1] - self.window[0]) / HOUR_S / DAY_H

    @property
    def span(self) -> str:
        """The window in words."""
        last_s = arrival_span_s(self.results)[1]
        ends = "first submission to the last end" if self.window[1] > last_s else "first to the last submission"
        return f"the {duration_text(self.window[1] - self.window[0])} from the {ends}"

    @property
    def policies(self) -> Sequence[WhatIfCase]:
        """The cases that were replayed."""
        return self.cases[1:]

    @property
    def compared(self) -> Sequence[WhatIfCase]:
        """Those of them that skip no more jobs than others: who does less has it easier."""
        barred = skipping(self.results[: len(self.policies)])
        return [case for run, case in enumerate(self.policies) if run not in barred]

    @property
    def sizes_to_start(self) -> tuple[int, ...]:
        """Sizes of jobs that the cluster could hold at all."""
        return tuple(size for size in JOBS_TO_START if size <= self.cluster.gpus)

    def money_a_day(self, machines: MachineHours) -> float:
        """Return what the machines that could have been off cost a day."""
        return machines.off_gpu_hours * self.price_per_gpu_hour / self.days

    def facts(self) -> dict[str, Any]:
        """Return the answer as plain values, for JSON."""
        return {
            "schema": SCHEMA,
            "cluster": self.cluster.describe(),
            "window_s": list(self.window),
            "days": self.days,
            "price_per_gpu_hour": self.price_per_gpu_hour,
            "cases": [self._case(case) for case in self.cases],
            "search": [_finite(asdict(search)) for search in self.searches],
            "collectives": [asdict(case) for case in self.collectives],
            "warnings": list(self.warnings),
            "assumptions": list(self.assumptions),
            "details": None if self.details is None else _finite(self.details.facts()),
        }

    def _case(self, case: WhatIfCase) -> dict[str, Any]:
        machines, waits, headroom = case.machines, case.waits, case.headroom
        money = largest = None
        if machines is not None:
            off = machines.off_gpu_hours * self.price_per_gpu_hour
            money = {"off_a_day": self.money_a_day(machines), "off": off}
        if headroom is not None:
            steps = {"anywhere": headroom.free_gpus, "on_idle_machines": headroom.idle_gpus}
            largest = {where: None if each is None else self._shares(each) for where, each in steps.items()}
        return {
            "name": case.name,
            "waits": None if waits is None else asdict(waits),
            "machines": None if machines is None else asdict(machines),
            "money": money,
            "mean_fragmentation": case.fragmentation,
            "largest_job": largest,
        }

    def _shares(self, free: StepFunction) -> dict[str, Any]:
        shares = {str(size): free.share_from(size) for size in self.sizes_to_start}
        return {"mean_gpus": free.mean, "share_of_time": shares}


def _finite(value: Any) -> Any:
    """Return plain values as JSON has them: names are text, and what is infinite is nothing."""
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
