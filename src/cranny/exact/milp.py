"""A linear program with some whole variables, for SCIP, which comes with OR-tools.

HiGHS, which comes with SciPy, was faster; but its presolve called solutions optimal that were not, and without
presolve it writes to the terminal.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ortools.linear_solver import pywraplp

from cranny.model.errors import CrannyError

Floats = npt.NDArray[np.float64]
Term = tuple[int, float]  # a variable and what it is multiplied by

SETTINGS = "numerics/feastol = 1e-9"  # how far a row may be from what it should be


class MilpSolution(NamedTuple):
    """What was found: a value for each variable if anything was, and what no solution is below."""

    values: Floats | None
    bound: float
    stopped: bool  # by the time limit


class MilpModel:
    """Variables with limits, rows over them, and what to minimise."""

    def __init__(self) -> None:
        self._solver = pywraplp.Solver.CreateSolver("SCIP")
        self._solver.SetSolverSpecificParametersAsString(SETTINGS)
        self._variables: list[pywraplp.Variable] = []
        self._high: list[float] = []

    def variable(self, high: float = math.inf, *, whole: bool = False, cost: float = 0.0) -> int:
        """Add a variable from 0 to `high`."""
        made = self._solver.Var(0.0, high, whole, "")
        self._solver.Objective().SetCoefficient(made, cost)
        self._variables.append(made)
        self._high.append(high)
        return len(self._variables) - 1

    def variables(self, highs: Iterable[float], *, whole: bool = False) -> list[int]:
        """Add a variable for each upper limit."""
        return [self.variable(high, whole=whole) for high in highs]

    def add(self, terms: Iterable[Term], least: float = -math.inf, most: float = math.inf) -> None:
        """Add a row: what a sum of terms must be at least and at most; terms of one variable add up."""
        total: dict[int, float] = {}
        for variable, factor in terms:
            total[variable] = total.get(variable, 0.0) + factor
        row = self._solver.Constraint(least, most)
        for variable, factor in total.items():
            row.SetCoefficient(self._variables[variable], factor)

    def solve(self, fixed: Mapping[int, float], time_limit_s: float = 0.0) -> MilpSolution | None:
        """Minimise with some variables fixed; None if nothing keeps to all rows. A limit of 0 is none."""
        for variable, value in fixed.items():
            self._variables[variable].SetBounds(value, value)
        self._solver.SetTimeLimit(math.ceil(1000 * time_limit_s))
        to_the_end = pywraplp.MPSolverParameters()
        to_the_end.SetDoubleParam(to_the_end.RELATIVE_MIP_GAP, 0.0)
        status = self._solver.Solve(to_the_end)
        if status == pywraplp.Solver.INFEASIBLE:
            return None
        found = status in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE)
        if not found and status != pywraplp.Solver.NOT_SOLVED:
            raise CrannyError(f"SCIP gave up with status {status}")
        values = np.array([each.solution_value() for each in self._variables]) if found else None
        bound = self._solver.Objective().BestBound()
        for variable in fixed:
            self._variables[variable].SetBounds(0.0, self._high[variable])
        return MilpSolution(values, float(bound), status != pywraplp.Solver.OPTIMAL)
