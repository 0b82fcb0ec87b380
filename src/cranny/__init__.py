"""cranny decides where the workers of distributed training jobs run.

    import cranny
    cluster = cranny.Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8)
    trace = cranny.generate_trace("philly", jobs=5000, seed=0)
    result = cranny.simulate(cluster, trace)
    print(result.summary)

Only these names are the public interface. Each is loaded when it is first used, so that importing
cranny stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cranny import version as _version

if TYPE_CHECKING:
    from cranny.analysis.whatif.what_if import what_if
    from cranny.core.state import ClusterState
    from cranny.core.traffic import traffic
    from cranny.model.cluster import Cluster
    from cranny.model.errors import CrannyError, InputError, PlacementError, StalePlanError
    from cranny.model.job import Job
    from cranny.model.placement import Placement
    from cranny.model.plan import Plan
    from cranny.model.profile import ModelProfile
    from cranny.policies import listing as policies
    from cranny.policies import policy
    from cranny.run import Result, compare, simulate
    from cranny.scenario import Scenario
    from cranny.traces.generate import generate_trace
    from cranny.traces.read import read_trace
    from cranny.traces.trace import Trace

__version__ = _version.VERSION

_HOME = {
    "Cluster": "model.cluster",
    "ClusterState": "core.state",
    "CrannyError": "model.errors",
    "InputError": "model.errors",
    "Job": "model.job",
    "ModelProfile": "model.profile",
    "Placement": "model.placement",
    "PlacementError": "model.errors",
    "Plan": "model.plan",
    "Result": "run",
    "Scenario": "scenario",
    "StalePlanError": "model.errors",
    "Trace": "traces.trace",
    "compare": "run",
    "generate_trace": "traces.generate",
    "policies": "policies",  # the module itself, which can be called
    "policy": "policies",
    "read_trace": "traces.read",
    "simulate": "run",
    "traffic": "core.traffic",
    "what_if": "analysis.whatif.what_if",
}

__all__ = [
    "Cluster",
    "ClusterState",
    "CrannyError",
    "InputError",
    "Job",
    "ModelProfile",
    "Placement",
    "PlacementError",
    "Plan",
    "Result",
    "Scenario",
    "StalePlanError",
    "Trace",
    "__version__",
    "compare",
    "generate_trace",
    "policies",
    "policy",
    "read_trace",
    "simulate",
    "traffic",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cranny' has no attribute {name!r}")
    home = import_module(f"cranny.{_HOME[name]}")
    value = home if name == _HOME[name] else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
