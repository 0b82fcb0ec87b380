"""What a benchmark case reports, how time is taken, and where the slow references are that it is compared with."""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from cranny.policies import TABLE
from cranny.report.fitted_table import FittedColumn, FittedTable

T = TypeVar("T")
JUDGED, UNTIL_THEN = "cranny", "netpack-lean"  # which is judged as long as there is no `cranny`


@dataclass(frozen=True, slots=True)
class Budget:
    """A measured value and the limit that it must keep."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def ok(self) -> bool:
        """Whether the limit is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcome of a case."""

    case: str
    metrics: Mapping[str, float]
    budgets: Sequence[Budget]

    def facts(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return {
            "case": self.case,
            "metrics": dict(self.metrics),
            "budgets": [{"name": b.name, "value": b.value, "limit": b.limit, "ok": b.ok} for b in self.budgets],
        }

    def table(self) -> FittedTable:
        """Return the outcome as a table."""
        limits = {budget.name: budget for budget in self.budgets}
        values = [f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}" for value in self.metrics.values()]
        bounds, verdicts = [], []
        for name in self.metrics:
            budget = limits.get(name)
            bounds.append("" if budget is None else f"{'>=' if budget.at_least else '<='} {budget.limit:g}")
            verdicts.append("" if budget is None else "ok" if budget.ok else "MISSED")
        styles = ["red" if verdict == "MISSED" else "green" for verdict in verdicts]
        columns = [
            FittedColumn("", list(self.metrics), right=False),
            FittedColumn("value", values),
            FittedColumn("budget", bounds),
            FittedColumn("", verdicts, right=False, styles=styles),
        ]
        return FittedTable(columns, title=self.case)


def timed_ms(work: Callable[[], T]) -> tuple[float, T]:
    """Return what some work takes of the processor, and what it finds."""
    began = time.process_time()
    found = work()
    return 1e3 * (time.process_time() - began), found


def reference(name: str) -> ModuleType:
    """Return a slow, literal implementation from the project's tests."""
    return importlib.import_module(f"tests.reference.{name}")


def judged_policy() -> str:
    """Return the policy that we recommend, which has budgets of its own."""
    return JUDGED if JUDGED in TABLE else UNTIL_THEN
