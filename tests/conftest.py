import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from tests.reference.invariants import check

# CI draws the same examples each time, so that a failure comes from the change; `make fuzz` draws at random, and
# what it finds becomes an `@example`. How long it takes says more about the machine than about the code.
for profile in ("ci", "fuzz"):
    settings.register_profile(
        profile,
        derandomize=profile == "ci",
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Tests that mostly wait: for jobs, services, databases and browsers. They come first, those that take longest at
# the very start, so that other processes compute meanwhile, and none is waited for in the end.
WAITING = (
    "benchmarks/test_testbed.py",
    "slurm/test_slurm_service.py",
    "service/test_torch_training.py",
    "service/test_crash.py",
    "slurm/test_stream.py",
    "agent/test_torch.py",
    "analysis/sweep/test_ray_runner.py",
    "service/test_elastic_training.py",
    "service/test_dashboard",
    "slurm/",
    "chaos/",
    "service/",
    "backends/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that mostly wait before all others."""

    def place(item: pytest.Item) -> int:
        name = item.nodeid.removeprefix("tests/")
        return next((at for at, start in enumerate(WAITING) if name.startswith(start)), len(WAITING))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Keep the modules and tests that are loaded now from the garbage collector, which would visit them often.

    It comes less often, too: a test is short, and most of what it makes is gone without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped anything: everything that a test may need is there."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real traces and papers' figures beside the project, or skip the test."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "shared" / "traces").is_dir():
            return parent / "shared"
    pytest.skip("the folder `shared` with real traces is not beside the project")


@pytest.fixture
def make_state() -> Iterator[Callable[[Cluster], ClusterState]]:
    """Return what makes the state of a cluster; all its invariants are checked when the test is over."""
    made: list[ClusterState] = []

    def make(cluster: Cluster) -> ClusterState:
        made.append(ClusterState(cluster))
        return made[-1]

    yield make
    for state in made:
        check(state)


@pytest.fixture
def state(make_state: Callable[[Cluster], ClusterState]) -> ClusterState:
    """Return the state of two racks with two machines of four GPUs each."""
    return make_state(Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4))


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures of papers' pages blank: drawing takes most of their time. Other tests look at them."""

    def save(_figure: object, path: Path) -> Path:
        path = path.with_suffix(".svg")
        path.write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
        return path

    monkeypatch.setattr("cranny.repro.page.save", save)


@pytest.fixture
def svg_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw pictures as SVG and not as PNG, too; another test looks for both."""
    figures = pytest.importorskip("matplotlib.figure", reason="pictures need the extra `repro`")
    save = figures.Figure.savefig

    def save_svg(figure: object, path: Path, **options: object) -> None:
        if path.suffix == ".svg":
            save(figure, path, **options)

    monkeypatch.setattr(figures.Figure, "savefig", save_svg)
