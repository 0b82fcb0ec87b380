"""What `cranny doctor slurm` checks: whether Slurm can be read and driven from here, and what to change if not."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal, NamedTuple

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_cluster import lint_links, read_switches
from cranny.backends.slurm.slurm_commands import SlurmCommands
from cranny.backends.slurm.slurm_nodes import SlurmNode, cluster_name, cluster_of
from cranny.backends.slurm.slurm_reader import INTERVAL_S, SlurmReader
from cranny.backends.slurm.slurm_rest import SlurmRest
from cranny.backends.slurm.slurm_rights import account_name, admin_level, owns_slurm
from cranny.cluster_import.imported import naming
from cranny.cluster_import.topology_lint import lint_cluster
from cranny.model.cluster import Cluster
from cranny.model.validate import counted

COMMANDS = ("scontrol", "squeue", "sinfo", "sbatch", "scancel")
OLDEST = (22, 5)  # whose JSON has what is needed
SKEW_S, MOST_SKEW_S = 2.0, 60.0
SLOW_S = 2.0  # for one look at all jobs
MISSING = "not found: "
Level = Literal["ok", "note", "warning", "error"]
_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)


class CheckResult(NamedTuple):
    """What a check found."""

    level: Level
    about: str
    found: str
    advice: str = ""  # what to change


@dataclass
class SlurmChecks:
    """Checks of one Slurm; what several of them need is read once."""

    commands: SlurmCommands
    now_s: Callable[[], float]
    links: Cluster | None = None  # has the speeds of links
    rest: SlurmRest | None = None

    def results(self) -> Iterator[CheckResult]:
        """Yield what each check finds; the rest is pointless if Slurm does not answer."""
        if self.rest is not None:
            yield self._read_by(self.rest)
        for check in (self._tools, self._answers):
            found = list(check())
            yield from found
            if any(each.level == "error" or each.found.startswith(MISSING) for each in found):
                return
        for check in (
            *(self._clock, self._rights, self._scheduling, self._gpus, self._topology),
            *(self._nodes_out, self._marking, self._accounting),
        ):
            try:
                yield from check()
            except (BackendError, OSError) as error:
                about = check.__name__.strip("_").replace("_", " ")
                yield CheckResult("error", about, str(error))

    @cached_property
    def _config(self) -> dict[str, str]:
        return dict(_SETTING.findall(self._configuration))

    @property
    def _configuration(self) -> str:
        return self._timed_configuration[1]

    @cached_property
    def _timed_configuration(self) -> tuple[float, str, float]:
        """What slurmctld has read, with the time that it says it is, and when it was asked and had answered."""
        asked_s = self.now_s()
        return asked_s, self.commands.call("scontrol", "show", "config"), self.now_s()

    @cached_property
    def _nodes(self) -> dict[str, SlurmNode]:
        return SlurmReader(self.commands).nodes()

    @cached_property
    def _admin_level(self) -> str:
        return admin_level(self.commands)

    def _setting(self, name: str) -> str:
        value = self._config.get(name, "")
        return "" if value in ("(null)", "N/A") else value

    def _tools(self) -> Iterator[CheckResult]:
        missing = [name for name in COMMANDS if shutil.which(name) is None]
        if missing:
            advice = "install Slurm's client commands (slurm-client in Debian), or put them on the PATH"
            if self.rest is None:
                advice += "; to read alone, --recommend-only can do with slurmrestd"
            level: Level = "error" if self.rest is None else "note"
            yield CheckResult(level, "commands", f"{MISSING}{', '.join(missing)}", advice)
            return
        try:
            said = self.commands.call("scontrol", "--version")
        except (BackendError, OSError) as error:
            yield CheckResult(
                "error", "commands", str(error), "set SLURM_CONF, or run on a machine of the cluster"
            )
            return
        version = next(iter(re.findall(r"\d+(?:\.\d+)+", said)), "0")
        if tuple(map(int, version.split(".")))[:2] < OLDEST:
            yield CheckResult("error", "commands", f"Slurm {version}", "cranny needs 22.05 or newer")
        else:
            yield CheckResult("ok", "commands", f"Slurm {version}")

    def _read_by(self, rest: SlurmRest) -> CheckResult:
        try:
            reader = SlurmReader(self.commands, rest=rest)
            said = (
                f"{counted(len(reader.table().jobs), 'job')} and {counted(len(reader.nodes()), 'node')} with GPUs"
            )
        except (BackendError, OSError) as error:
            advice = "start slurmrestd, set SLURM_JWT (scontrol token), or give its address to --slurmrestd"
            return CheckResult("error", "slurmrestd", str(error), advice)
        return CheckResult("ok", "slurmrestd", f"it lists {said}: enough for --recommend-only")

    def _answers(self) -> Iterator[CheckResult]:
        try:
            ping = " ".join(self.commands.call("scontrol", "ping").split())
            began_s = time.monotonic()
            jobs = len(SlurmReader(self.commands).table().jobs)
            took_s = time.monotonic() - began_s
        except (BackendError, OSError) as error:
            advice = "start slurmctld and munged, or set SLURM_CONF; see slurmctld's log"
            yield CheckResult("error", "controller", str(error), advice)
            return
        said = f"{ping}; it lists {counted(jobs, 'job')} in {took_s:.2f} s"
        slow = f"cranny asks every {INTERVAL_S:g} s: serve with a longer --slurm-interval"
        yield CheckResult(
            "warning" if took_s > SLOW_S else "ok", "controller", said, slow if took_s > SLOW_S else ""
        )

    def _clock(self) -> Iterator[CheckResult]:
        asked_s, printed, answered_s = self._timed_configuration
        found = re.search(r"Configuration data as of (\S+)", printed)
        if found is None:
            yield CheckResult("note", "clock", "slurmctld does not say what time it is")
            return
        its_s = datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()  # a whole second
        skew_s = max(0.0, its_s - answered_s) + min(0.0, its_s + 1.0 - asked_s)
        said = f"that of slurmctld is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}"
        advice = "let both machines keep time by NTP (munge refuses more than five minutes)"
        if abs(skew_s) > MOST_SKEW_S:
            yield CheckResult("error", "clock", said, advice)
        elif abs(skew_s) > SKEW_S:
            yield CheckResult("warning", "clock", said, advice)
        else:
            yield CheckResult("ok", "clock", "that of slurmctld agrees with ours")

    def _rights(self) -> Iterator[CheckResult]:
        user = account_name()
        owns, operator = owns_slurm(self._configuration), self._admin_level in ("Operator", "Administrator")
        if operator and not owns:
            yield CheckResult("ok", "rights", f"{user} is {self._admin_level.lower()} in Slurm")
        elif owns:
            advice = "run cranny as an account of its own that is an operator, if there is accounting"
            yield CheckResult(
                "note", "rights", f"{user} may do everything in Slurm, more than cranny needs", advice
            )
        elif self._admin_level:
            advice = f"sacctmgr modify user {user} set adminlevel=operator (or serve with --recommend-only)"
            yield CheckResult("error", "rights", f"{user} may not place jobs of others", advice)
        else:
            advice = "without slurmdbd only root and SlurmUser may place jobs of others (or use --recommend-only)"
            yield CheckResult("error", "rights", f"{user} may not place jobs of others", advice)
        private = {"jobs", "nodes"} & set(self._setting("PrivateData").split(","))
        if private and not (owns or operator):
            said = f"PrivateData={','.join(sorted(private))}: {user} does not see all of the cluster"
            yield CheckResult("error", "rights", said, "make it an operator")

    def _scheduling(self) -> Iterator[CheckResult]:
        select = self._setting("SelectType")
        if select != "select/cons_tres":
            yield CheckResult(
                "error", "scheduling", f"SelectType={select}", "GPUs need SelectType=select/cons_tres"
            )
        kind = self._setting("SchedulerType")
        if select == "select/cons_tres":
            yield CheckResult("ok", "scheduling", f"{select}, {kind}")
        if kind != "sched/backfill":
            yield CheckResult("note", "scheduling", "heterogeneous jobs start by sched/backfill alone")
        age = re.match(r"\d+", self._setting("MinJobAge"))
        if age and int(age[0]) < 3 * INTERVAL_S and self._setting("AccountingStorageType").endswith("none"):
            said = f"MinJobAge={age[0]} s: slurmctld forgets jobs before cranny has seen their end"
            yield CheckResult("warning", "scheduling", said, "set MinJobAge to 60 or more, or have accounting")

    def _gpus(self) -> Iterator[CheckResult]:
        if "gpu" not in self._setting("GresTypes").split(","):
            yield CheckResult("error", "GPUs", "GresTypes does not name gpu", "set GresTypes=gpu in slurm.conf")
            return
        machines = [node.machine for node in self._nodes.values()]
        if not machines:
            advice = "give nodes Gres=gpu:TYPE:COUNT in slurm.conf, and their files in gres.conf"
            yield CheckResult("error", "GPUs", "no node has GPUs", advice)
            return
        types = sorted({machine.gpu_type for machine in machines} - {""})
        said = f"{counted(sum(each.gpus for each in machines), 'GPU')} on {counted(len(machines), 'node')}"
        yield CheckResult("ok", "GPUs", f"{said}: {', '.join(types) or 'no types'}")
        untyped = [each.name for each in machines if not each.gpu_type]
        if untyped and types:
            advice = "name it in Gres=gpu:TYPE:COUNT and in gres.conf"
            yield CheckResult("warning", "GPUs", f"no type of GPU on {naming(untyped)}", advice)

    def _topology(self) -> Iterator[CheckResult]:
        if not self._nodes:
            return
        tree = read_switches(self.commands)
        if tree is None:
            said = f"TopologyPlugin={self._setting('TopologyPlugin') or 'none'}: all nodes count as one rack"
            yield CheckResult("warning", "topology", said, "use topology/tree, and list switches in topology.conf")
        cluster = cluster_of(cluster_name(self._configuration), self._nodes, tree, self.links)
        problems = [*lint_links(cluster, self.links), *lint_cluster(cluster)]
        if not problems:
            yield CheckResult("ok", "topology", f"{counted(len(cluster.rack_names), 'rack')}, nothing implausible")
        for each in problems:
            yield CheckResult(each.level, "topology", f"{each.where}: {each.problem}")

    def _nodes_out(self) -> Iterator[CheckResult]:
        out = {name: node.failed or node.unavailable for name, node in self._nodes.items()}
        for why in sorted(set(out.values()) - {""}):
            names = [name for name, each in out.items() if each == why]
            yield CheckResult("note", "nodes", f"{naming(names)}: {why}")

    def _marking(self) -> Iterator[CheckResult]:
        if "lua" in self._setting("JobSubmitPlugins").split(","):
            yield CheckResult("ok", "marking", "job_submit/lua is on: deploy/slurm/job_submit.lua can mark jobs")
        else:
            said = "JobSubmitPlugins has no lua: users mark and hold jobs for cranny themselves"
            yield CheckResult("note", "marking", said, "sbatch --hold --comment=cranny")

    def _accounting(self) -> Iterator[CheckResult]:
        if not self._setting("AccountingStorageType").endswith("slurmdbd"):
            said = "none: `cranny what-if --slurm` has no log"
            yield CheckResult("note", "accounting", said, "set up slurmdbd")
            return
        if "gres/gpu" not in self._setting("AccountingStorageTRES").split(","):
            said = "AccountingStorageTRES has no gres/gpu: the log does not say how many GPUs jobs had"
            yield CheckResult("warning", "accounting", said, "AccountingStorageTRES=gres/gpu")
        self.commands.call("sacct", "-n", "-X", "-P", "-S", "now-1hour", "-o", "JobID")
        yield CheckResult("ok", "accounting", "sacct answers")
