"""What a what-if found: one case for the log itself and one for each policy, and what was searched."""

import enum
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from cranny.analysis.whatif.as_it_was import AsItWas
from cranny.analysis.whatif.calibration import Calibration
from cranny.analysis.whatif.details import AnswerDetails
from cranny.analysis.whatif.headroom import HOUR_S, Headroom, MachineHours
from cranny.analysis.whatif.job_spread import JobSpread
from cranny.analysis.whatif.large_jobs import LargeJobWait
from cranny.analysis.whatif.machine_search import MachineSearch
from cranny.analysis.whatif.savings import CaseSaving
from cranny.analysis.whatif.schema_name import SCHEMA
from cranny.analysis.whatif.type_changes import TypeOutcome
from cranny.analysis.whatif.waits import Waits
from cranny.model.cluster import Cluster
from cranny.report.notebook import plain_text, sheets_html
from cranny.report.sampling import arrival_span_s
from cranny.report.scales import duration_text
from cranny.report.text_table import TextTable, terminal_table
from cranny.sim.result import Result
from cranny.traces.inspect import StepFunction, Window
from cranny.traces.trace import TraceWindow

JOBS_TO_START = (8, 16, 32, 64)  # GPUs of the jobs of which we say how often they could have started
DAY_H = 24.0


class CaseKind(enum.StrEnum):
    """What a case is."""

    LOG = "log"  # as it was
    SCHEDULER = "scheduler"  # a replay of the scheduler that wrote the log, against which policies are judged
    POLICY = "policy"


@dataclass(frozen=True, slots=True, eq=False)
class WhatIfCase:
    """The log itself, or its replay under one policy; None is for what the log does not say."""

    name: str
    kind: CaseKind
    waits: Waits | None
    headroom: Headroom | None
    machines: MachineHours | None = None
    fragmentation: float | None = None
    spread: JobSpread | None = None
    cross_traffic_gb: float | None = None  # of one iteration of every running job, mean over arrivals
    jobs_skipped: int = 0
    large_jobs: Sequence[LargeJobWait] | None = None


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
    cases: Sequence[WhatIfCase]  # the log itself first
    searches: Sequence[MachineSearch]
    warnings: Sequence[str]
    assumptions: Sequence[str]
    results: Sequence[Result]
    details: AnswerDetails  # money, groups and problem jobs
    collectives: Sequence[CollectiveCase] = ()
    as_it_was: AsItWas | None = None  # where jobs ran; None if the log does not say
    calibration: Calibration | None = None  # how well the row `scheduler` predicts the log
    why_not_calibrated: str = ""  # said where there is no such row
    removed_last: frozenset[int] = frozenset()  # machines on which skipped jobs were, when some are removed
    type_changes: Sequence[TypeOutcome] = ()  # what machines of one type more or fewer would do
    edges: TraceWindow | None = None  # that the log was cut to
    tables: Sequence[TextTable] = ()  # of all that, for people

    def __repr__(self) -> str:
        about = f"{self.span} on {self.cluster.describe()}"
        return f"{about}\n{plain_text(terminal_table(self.tables[0]))}" if self.tables else about

    def _repr_html_(self) -> str:
        return sheets_html(self.tables)

    @property
    def days(self) -> float:
        """Length of the time that is measured."""
        return (self.window[1] - self.window[0]) / HOUR_S / DAY_H

    @property
    def span(self) -> str:
        """The time that is measured, in words."""
        length = f"the {duration_text(self.window[1] - self.window[0])}"
        late = self.window[1] > arrival_span_s(self.results)[1]
        if self.edges is None:
            ends = "first submission to the last end" if late else "first to the last submission"
            return f"{length} from the {ends}"
        after = " after its warm-up" if self.edges.warm_up_s else ""
        ends = "" if self.edges.end_s is not None else f" to the last {'end' if late else 'submission'}"
        return f"{length} of the window{after}{ends}"

    @property
    def was(self) -> WhatIfCase:
        """The log itself."""
        return self.cases[0]

    @property
    def scheduler(self) -> WhatIfCase | None:
        """The replay of the log's own scheduler, if there is one."""
        return next((case for case in self.cases if case.kind is CaseKind.SCHEDULER), None)

    @property
    def policies(self) -> Sequence[WhatIfCase]:
        """The policies that were replayed."""
        return [case for case in self.cases if case.kind is CaseKind.POLICY]

    @property
    def compared(self) -> Sequence[WhatIfCase]:
        """Those of them that skip no more jobs than others: who does less has it easier."""
        fewest = min(case.jobs_skipped for case in self.policies)
        return [case for case in self.policies if case.jobs_skipped == fewest]

    @property
    def sizes_to_start(self) -> tuple[int, ...]:
        """Sizes of jobs that the cluster could hold at all."""
        return tuple(size for size in JOBS_TO_START if size <= self.cluster.gpus)

    def credited_wait_s(self, case: WhatIfCase) -> float | None:
        """Return the mean wait that the log would have had, if a policy changed it as it changes the replay."""
        known = [each.waits for each in (self.was, self.scheduler, case) if each is not None and each.waits]
        if len(known) < 3:
            return None
        was_s, own_s, case_s = (each.wait.mean_s for each in known)
        return max(0.0, was_s - (own_s - case_s))

    def savings(self) -> list[tuple[WhatIfCase, CaseSaving]]:
        """Return the policies that can be compared and do the same work as the log, the largest saving first."""
        of_case = self.details.savings.of_case
        found = [(case, of_case[case.name]) for case in self.compared if case.name in of_case]
        return sorted(found, key=lambda each: -each[1].shown.a_day)

    def facts(self) -> dict[str, Any]:
        """Return the answer as plain values, for JSON."""
        return {
            "schema": SCHEMA,
            "cluster": self.cluster.describe(),
            "window_s": list(self.window),
            "days": self.days,
            "price_per_gpu_hour": None if self.details.prices.name else self.price_per_gpu_hour,
            "as_it_was": self._as_it_was(),
            "calibration": None if self.calibration is None else _finite(self.calibration.facts()),
            "why_not_calibrated": self.why_not_calibrated or None,
            "cases": [self._case(case) for case in self.cases],
            "search": [_finite(asdict(search)) for search in self.searches],
            "type_changes": [asdict(change) for change in self.type_changes],
            "collectives": [asdict(case) for case in self.collectives],
            "warnings": list(self.warnings),
            "assumptions": list(self.assumptions),
            "details": _finite(self.details.facts()),
        }

    def _case(self, case: WhatIfCase) -> dict[str, Any]:
        machines, waits, headroom = case.machines, case.waits, case.headroom
        largest = None
        if headroom is not None:
            steps = {"anywhere": headroom.free_gpus, "on_idle_machines": headroom.idle_gpus}
            largest = {where: None if each is None else self._shares(each) for where, each in steps.items()}
        return {
            "name": case.name,
            "kind": str(case.kind),
            "waits": None if waits is None else asdict(waits),
            "machines": None if machines is None else asdict(machines),
            "money": self._money(case.name),
            "mean_fragmentation": case.fragmentation,
            "mean_cross_traffic_gb": case.cross_traffic_gb,
            "spread": None if case.spread is None else asdict(case.spread),
            "jobs_skipped": case.jobs_skipped,
            "largest_job": largest,
            "large_jobs": None
            if case.large_jobs is None
            else {str(each.gpus): asdict(each) for each in case.large_jobs},
        }

    def _money(self, name: str) -> dict[str, Any] | None:
        """Return in a few numbers what `details` has of a case; None if it is unknown which machines were idle."""
        if name not in self.details.costs:
            return None
        saving = self.details.savings.of_case.get(name)
        off_a_day = self.details.off_a_day(name)
        credited = None if saving is None or saving.credited is None else saving.credited.a_day
        return {
            "off_a_day": off_a_day,
            "off": off_a_day * self.days,
            "saved_a_day": None if saving is None else saving.whole.a_day,
            "saved": None if saving is None else saving.whole.a_day * self.days,
            "credited_a_day": credited,
            "credited": None if credited is None else credited * self.days,
        }

    def _as_it_was(self) -> dict[str, Any] | None:
        was = self.as_it_was
        if was is None:
            return None
        return {
            "is_known": was.is_known,
            "share_of_gpu_hours": was.share,
            "unplaced": {reason: each._asdict() for reason, each in was.unplaced.items()},
            "unknown_machines": list(was.unknown_machines),
            "divided_otherwise": was.divided_otherwise,
            "held_twice": was.held_twice,
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
