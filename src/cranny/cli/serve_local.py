"""Options of `cranny serve` for jobs on this machine, and what the service runs jobs with."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cranny.cli import options
from cranny.cli.enforced_limits import EnforcedLimits
from cranny.cli.options import option
from cranny.model.errors import InputError

if TYPE_CHECKING:
    from cranny.backends.cluster_reading import ClusterSource
    from cranny.backends.protocol import Backend
    from cranny.model.cluster import Cluster


class JobRunner(NamedTuple):
    """What runs jobs, if anything may, where, and for whom; a source says which machines there are."""

    backend: "Backend | None"
    cluster: "Cluster | None"
    source: "ClusterSource | None" = None
    check_user: Callable[[str], object] = lambda _user: None


@dataclass
class LocalOptions:
    """How jobs run on this machine."""

    accounts: Annotated[
        str | None,
        option(
            "--accounts",
            "Run jobs under the accounts of their users: `same-name`, or a file that names them (default: all run "
            "as you).",
        ),
    ] = None
    run_as: Annotated[
        str | None, option("--run-as", "Account of the service itself, if root starts it with --accounts.")
    ] = None
    jobs_as_root: Annotated[
        bool, option("--jobs-as-root", "Let jobs of all users run as root.", envvar="CRANNY_JOBS_AS_ROOT")
    ] = False
    limit: Annotated[
        list[str] | None,
        option(
            "--limit",
            "What a job may use for each of its GPUs: memory_gb=64, processes=4096 or cpus=8; once for each "
            "(default: no limits).",
        ),
    ] = None
    ulimit: Annotated[
        list[str] | None,
        option(
            "--ulimit",
            "What each process of a job may use: nofile=65536, memlock=unlimited, nproc, fsize, stack, as, core; "
            "once for each (default: as the service, without core dumps of other users).",
        ),
    ] = None
    log_limit_mb: Annotated[
        float, option("--log-limit-mb", "How much of the output of each rank is kept: the newest.", min=0.1)
    ] = 100.0
    keep_logs_days: Annotated[
        float | None,
        option(
            "--keep-logs-days",
            "Delete the logs of jobs that have been over for longer (default: keep them).",
            min=0,
        ),
    ] = None
    gpu_device: Annotated[
        list[Path] | None,
        option(
            "--gpu-device",
            "Device file of a GPU, in the order of their numbers; jobs cannot open those that they were not given "
            "(default: those of NVIDIA's driver).",
        ),
    ] = None

    @property
    def shared(self) -> bool:
        """Whether jobs run under the accounts of their users."""
        return self.accounts is not None

    def build(self, cluster: str | None, folder: Path, *, recommend_only: bool) -> JobRunner:
        """Return what runs jobs: under the accounts of their users, or all as this user."""
        from cranny.backends.local import LocalBackend
        from cranny.backends.rights import apart, check_one_user

        enforced = EnforcedLimits(self.limit, self.ulimit, self.gpu_device, self.log_limit_mb)
        if self.accounts is None and self.run_as is not None:
            raise InputError("--run-as needs --accounts")
        if self.accounts is None:
            if not (self.jobs_as_root or recommend_only):
                check_one_user()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        described = None if cluster is None else options.read_cluster(cluster)
        launcher = None if self.accounts is None else apart(self.accounts, self.run_as, folder)
        backend = LocalBackend(
            described,
            launcher=launcher,
            limits=enforced.per_gpu,
            device_files=enforced.gpu_devices,
            log_limit=enforced.log_bytes,
            process_limits=enforced.of_process,
        )
        enforced.check(backend, shared=self.shared)
        runs = None if recommend_only else backend
        return JobRunner(runs, backend.nodes(), check_user=backend.check_user)
