"""A service whose jobs really talk over the links of its cluster."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import httpx

from benchmarks.testbed import network
from cranny.model.cluster import Cluster

ROOT = Path(__file__).parents[2]
TRAIN = Path(__file__).with_name("train.py")
CRANNY = (sys.executable, "-c", "from cranny.cli import main; main()")
JOBS = 3  # that find a place: one machine for each in either rack
LINK_GBPS = 0.1
STARTED_S = 120.0  # a busy machine loads PyTorch slowly
COMPILED_S = 600.0  # and compiles a policy even more so
BYTES_PER_MB = 1e6
NICE = -15


class TestbedError(Exception):
    """The service or a job does not do what it should."""


class TrainingJob(NamedTuple):
    """What a job of the testbed does in an iteration."""

    name: str
    compute_s: float
    gradient_mb: float
    jitter: float = 0.0
    grows_by_s: float = 0.0  # what computing takes longer in the end
    grows_for_s: float = 1.0

    def options(self) -> list[str]:
        """Return the options of `train.py`."""
        names = ("compute_s", "gradient_mb", "jitter", "grows_by_s", "grows_for_s")
        given = [(f"--{each.replace('_', '-')}", str(value)) for each, value in zip(names, self[1:], strict=True)]
        return [text for pair in given for text in pair]


class IterationTimes(NamedTuple):
    """An iteration, by the monotonic clock of this machine."""

    before_s: float  # when the one before it ended
    start_s: float
    computed_s: float
    end_s: float


class Measured(NamedTuple):
    """Iterations of a job in some stretch of time."""

    times: tuple[IterationTimes, ...]

    @property
    def mean_s(self) -> float:
        """Seconds of an iteration from end to end, with waits."""
        return (self.times[-1].end_s - self.times[0].before_s) / len(self.times)

    def __str__(self) -> str:
        compute_s = median(each.computed_s - each.start_s for each in self.times)
        exchange_s = median(each.end_s - each.computed_s for each in self.times)
        waited_s = fmean(each.start_s - each.before_s for each in self.times)
        parts = f"computes {compute_s:.3f} s, exchanges {exchange_s:.3f} s, waits {waited_s:.3f} s"
        return f"{len(self.times)} iterations of {self.mean_s:.3f} s: {parts}"


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """A running service on an emulated network: two racks, of which each job has a machine in either."""

    links: str  # the name of the network
    folder: Path
    client: httpx.Client

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the service, and return what it answers."""
        until_s = time.monotonic() + COMPILED_S
        while True:
            answer = self.client.request(method, f"/api/v1/{path}", json=body)
            if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > until_s:
                break
            time.sleep(0.5)  # it compiles its policy
        if answer.is_error:
            raise TestbedError(f"{method} {path}: {answer.text}")
        return answer.json() if answer.content else None

    def set_policy(self, name: str) -> None:
        """Let another policy decide from now on."""
        self.request("PUT", "policy", {"name": name})

    def submit(self, job: TrainingJob, place: int, start: Path | None = None) -> str:
        """Submit a job that has one machine in each rack: no others are to be had.

        With a file `start`, it trains once that exists.
        """
        file = self.times_file(job)
        file.touch()
        for rack in range(2):
            self.request("POST", f"nodes/{_machine(rack, place)}/resume")
        argv = [sys.executable, str(TRAIN), str(file), *job.options(), "--seed", str(place)]
        if start is not None:
            argv += ["--start-file", str(start)]
        spec = {
            "name": job.name,
            "command": network.command(self.links, argv),
            "gpus": 2,
            "profile": {"grad_bytes": job.gradient_mb * BYTES_PER_MB, "iteration_ms": 1e3 * job.compute_s},
            "env": {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        }
        job_id: str = self.request("POST", "jobs", spec)["id"]
        return job_id

    def times_file(self, job: TrainingJob) -> Path:
        """Return where a job writes its times."""
        return self.folder / f"{job.name}.times"

    def ready(self, job: TrainingJob) -> None:
        """Wait until a job with a file to start by could train."""
        file = self.times_file(job).with_suffix(".times.ready")
        self._wait_for(file.exists, f"{job.name} does not start")

    def started(self, job: TrainingJob, iterations: int = 5) -> None:
        """Wait until a job trains."""
        self._wait_for(lambda: len(self.times(job)) >= iterations, f"{job.name} does not train")

    def paces(self) -> list[dict[str, float]]:
        """Return what jobs are told to keep, in the order of their submission."""
        files = sorted(self.folder.rglob("control.json"))
        found = [json.loads(file.read_text(encoding="utf-8"))["pace"] for file in files]
        return [each for each in found if each is not None]

    def paced(self, jobs: int) -> None:
        """Wait until so many jobs are told when to start iterations."""
        self._wait_for(lambda: len(self.paces()) >= jobs, "jobs are not shifted", COMPILED_S)

    def times(self, job: TrainingJob, since_s: float = 0.0) -> list[IterationTimes]:
        """Return the iterations of a job from some time on."""
        lines = self.times_file(job).read_text(encoding="ascii").splitlines()
        found = [IterationTimes(*map(float, line.split())) for line in lines if line.count(" ") == 3]
        return [each for each in found if each.before_s >= since_s]

    def measured(self, job: TrainingJob, since_s: float) -> Measured:
        """Return the iterations of a job from some time on."""
        found = self.times(job, since_s)
        if len(found) < 2:
            raise TestbedError(f"{job.name} does not go on: {self._logs()}")
        return Measured(tuple(found))

    def _wait_for(self, done: Callable[[], bool], why_not: str, patience_s: float = STARTED_S) -> None:
        until_s = time.monotonic() + patience_s
        while not done():
            if time.monotonic() > until_s:
                raise TestbedError(f"{why_not}: {self._logs()}")
            time.sleep(0.2)

    def _logs(self) -> str:
        """Return what jobs have printed last."""
        return "\n".join(file.read_text(errors="replace")[-500:] for file in self.folder.rglob("rank-*.log"))


@contextmanager
def served(policy: str, folder: Path, links: network.Links = network.FIFO) -> Iterator[ServedCluster]:
    """Serve a cluster of two racks whose uplinks are as fast as one machine's; no machine is free at first."""
    cluster = Cluster.fat_tree(2, JOBS, 1, link_gbps=LINK_GBPS, oversubscription=JOBS)
    file = folder / "cluster.json"
    file.write_text(json.dumps(_written()), encoding="utf-8")
    with network.emulated(cluster, links) as name, _service(policy, file, folder) as client:
        served_cluster = ServedCluster(name, folder, client)
        for rack in range(2):
            for place in range(JOBS):
                served_cluster.request("POST", f"nodes/{_machine(rack, place)}/drain")
        try:
            yield served_cluster
        finally:
            _cancel_all(served_cluster)


def _cancel_all(served_cluster: ServedCluster) -> None:
    """Cancel all jobs, and wait until their processes are gone."""
    until_s = time.monotonic() + STARTED_S
    while open_jobs := [
        job["id"]
        for job in served_cluster.request("GET", "jobs")["jobs"]
        if job["status"] not in {"done", "failed", "cancelled"}
    ]:
        for job_id in open_jobs:
            with suppress(TestbedError):  # it has ended meanwhile
                served_cluster.request("POST", f"jobs/{job_id}/cancel")
        if time.monotonic() > until_s:
            raise TestbedError(f"jobs do not end: {open_jobs}")
        time.sleep(0.5)


def _written() -> dict[str, object]:
    """Return the cluster as a file has it."""
    racks = [
        {"name": f"r{rack}", "machines": [{"name": _machine(rack, place), "gpus": 1} for place in range(JOBS)]}
        for rack in range(2)
    ]
    return {"name": "testbed", "link_gbps": LINK_GBPS, "oversubscription": JOBS, "racks": racks}


def _machine(rack: int, place: int) -> str:
    return f"r{rack}m{place}"


@contextmanager
def _service(policy: str, cluster: Path, folder: Path) -> Iterator[httpx.Client]:
    """Start `cranny serve`, and end it."""
    kept = folder / "service"
    env = {name: value for name, value in os.environ.items() if not name.startswith("CRANNY_")}
    env |= {"XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT / "src"), "CRANNY_JOBS_AS_ROOT": "1"}
    argv = [*CRANNY, "serve", "--port", "0", "--cluster", str(cluster), "--policy", policy, "--folder", str(kept)]
    with (folder / "service.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log)  # noqa: S603 - our own command
        with suppress(PermissionError):  # so that other work of this machine disturbs little; jobs inherit it
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        try:
            address = _address(kept / "server.json", process)
            headers = {"Authorization": f"Bearer {address['token']}"}
            with httpx.Client(base_url=address["url"], headers=headers, timeout=60) as client:
                yield client
        finally:
            process.terminate()
            process.wait(60)


def _address(file: Path, process: "subprocess.Popen[bytes]") -> Any:
    """Return where a service is, once it says so."""
    until_s = time.monotonic() + STARTED_S
    while not file.exists():
        if process.poll() is not None or time.monotonic() > until_s:
            raise TestbedError("the service does not start")
        time.sleep(0.1)
    return json.loads(file.read_text(encoding="utf-8"))
