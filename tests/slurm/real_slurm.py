"""A real Slurm on this machine: munged, slurmctld and one slurmd for each of several nodes, all on loopback.

Nodes share the machine (slurmd -N), and their GPUs are devices that hold nothing. The daemons run under the host
name `localhost`, since slurmd listens on the address of the name of its host.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

PATIENCE_S = 120.0
PORTS = range(12_000, 20_000)
CONF = """
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock
CredType=cred/munge
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=1,bf_resolution=1,bf_hetjob_immediate,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
TopologyPlugin=topology/tree
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout={slurmd_timeout_s}
SlurmctldTimeout=20
InactiveLimit=0
MinJobAge={min_job_age_s}
KillWait=2
BatchStartTimeout=10
MessageTimeout={message_timeout_s}
DefMemPerCPU=100
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
NODE = (
    "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=16 Boards=1 SocketsPerBoard=2 "
    "CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000 Feature={feature} Gres=gpu:h100:{gpus} State=UNKNOWN"
)


def installed() -> bool:
    """Return whether a Slurm can be started here."""
    needed = ("slurmctld", "slurmd", "munged", "scontrol", "sbatch", "unshare", "setpriv")
    return os.getuid() == 0 and all(map(shutil.which, needed))


class RealSlurm:
    """A Slurm of our own; nodes and the controller can be ended and started."""

    def __init__(
        self,
        nodes: int = 8,
        gpus: int = 8,
        *,
        rack: int = 4,
        extra: Sequence[str] = (),
        lua: Path | None = None,
        slurmd_timeout_s: int = 10,
        min_job_age_s: int = 300,
        message_timeout_s: int = 10,
        accounting: Sequence[str] = ("AccountingStorageType=accounting_storage/none",),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cranny-slurm-"))  # the path of a socket must be short
        self.folder.chmod(0o755)
        for name in ("munge", "log", "state", "spool", "run", "dev", "etc"):
            (self.folder / name).mkdir(mode=0o711)
        self._gpus = gpus
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.conf = self.folder / "etc" / "slurm.conf"
        ports = list(free_ports(nodes + 1))
        lines = [
            CONF.format(
                folder=self.folder,
                port=ports[0],
                slurmd_timeout_s=slurmd_timeout_s,
                min_job_age_s=min_job_age_s,
                message_timeout_s=message_timeout_s,
            ),
            *(each.format(folder=self.folder) for each in (*accounting, *extra)),
        ]
        for place, (name, port) in enumerate(zip(self.nodes, ports[1:], strict=True)):
            lines.append(NODE.format(name=name, port=port, gpus=gpus, feature=f"row{place // rack + 1}"))
        racks = [self.nodes[place : place + rack] for place in range(0, nodes, rack)]
        switches = [f"SwitchName=rack{at} Nodes={','.join(each)}" for at, each in enumerate(racks, 1)]
        switches.append(f"SwitchName=spine Switches=rack[1-{len(racks)}]")
        if lua is not None:
            lines.append("JobSubmitPlugins=lua")
            shutil.copy(lua, self.conf.with_name("job_submit.lua"))
        self._lines, self._switches = lines, switches
        self._write()
        gres = f"NodeName={','.join(self.nodes)} Name=gpu Type=h100 File={self.folder}/dev/gpu[0-{gpus - 1}]\n"
        self.conf.with_name("gres.conf").write_text(gres)
        for gpu in range(gpus):
            os.mknod(self.folder / "dev" / f"gpu{gpu}", 0o666 | 0o020000, os.makedev(1, 3))
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def _write(self) -> None:
        self.conf.write_text("\n".join(self._lines) + "\n")
        self.conf.with_name("topology.conf").write_text("\n".join(self._switches) + "\n")

    def add_node(self, name: str) -> None:
        """Describe one node more, below the first rack; the controller must be restarted to know it."""
        (port,) = free_ports(1)
        self._lines.append(NODE.format(name=name, port=port, gpus=self._gpus, feature="row1"))
        self._switches[0] += f",{name}"
        gres = self.conf.with_name("gres.conf")
        gres.write_text(gres.read_text().replace(f"{self.nodes[-1]} ", f"{self.nodes[-1]},{name} "))
        self.nodes.append(name)
        self._write()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def env(self) -> dict[str, str]:
        """The environment of Slurm's commands."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Start everything, and wait until all nodes are idle."""
        key = self.folder / "munge" / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        names = {"socket": "munge.sock", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        files = [f"--{option}={key.with_name(name)}" for option, name in names.items()]
        self._daemon("munged", "munged", "--foreground", f"--key-file={key}", "--num-threads=4", *files)
        until(lambda: key.with_name("munge.sock").exists(), "munged")
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self.all_idle()

    def all_idle(self) -> None:
        """Wait until all nodes are idle."""
        until(lambda: set(self.call("sinfo", "-hN", "-o", "%t", check=False).split()) == {"idle"}, "idle nodes")

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._daemon("slurmctld", "slurmctld", "-D")

    def stop_controller(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End slurmctld."""
        self._end("slurmctld", number)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        self._daemon(name, "slurmd", "-D", "-N", name)

    def has_started(self, name: str) -> bool:
        """Return whether a node was started and not ended since."""
        return name in self._started

    def lose_node(self, name: str, reason: str = "power") -> None:
        """End a node as a power failure does, and let Slurm know: its slurmd first, and then its jobs.

        A slurmd that is heard of later would put the node back to service, and Slurm would start jobs there. An
        srun on another node that sees tasks die before Slurm knows of the node ends its job as failed.
        """
        self._end(name, signal.SIGKILL)
        self.call("scontrol", "update", f"NodeName={name}", "State=DOWN", f"Reason={reason}")
        self._kill_jobs(name)

    def call(self, *argv: str, user: str | None = None, check: bool = True, **env: str) -> str:
        """Run a command of Slurm, and return what it prints."""
        if user is not None:
            argv = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv)
        ran = subprocess.run(
            argv, env={**self.env, **env}, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd="/"
        )
        if check and ran.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {ran.stderr.strip()}")
        return ran.stdout

    def sbatch(self, *options: str, script: str = "#!/bin/sh\nexec sleep 600\n", user: str | None = None) -> str:
        """Submit a script, and return the id of its job."""
        where = Path(tempfile.mkstemp(dir=self.folder, suffix=".sh")[1])
        where.write_text(script)
        where.chmod(0o755)
        output = () if any(each.startswith(("-o", "--output")) for each in options) else ("--output=/dev/null",)
        return self.call("sbatch", "--parsable", *output, *options, str(where), user=user).strip()

    def state(self, job: str) -> str:
        """Return the state of a job as squeue has it; empty once it is forgotten."""
        return self.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False).strip()

    def comes_to(self, job: str, *states: str) -> str:
        """Wait until a job has one of some states."""
        until(lambda: self.state(job) in states, f"job {job}: {states}")
        return self.state(job)

    def restore(self) -> None:
        """Cancel every job, start what was ended, and wait until all nodes are idle."""
        for name in [each for each in self.nodes if not self.has_started(each)]:
            self.start_node(name)
        for name in self.call("sinfo", "-hN", "-t", "down,drain", "-o", "%N").split():
            self.call("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        ids = self.call("squeue", "-h", "-o", "%i").split()
        if ids:
            self.call("scancel", "--quiet", *ids, check=False)
            until(lambda: not self.call("squeue", "-h", "-o", "%A", check=False).split(), "no jobs")
        self.all_idle()

    def stop(self) -> None:
        """End everything that was started, and remove it."""
        for name in (*self.nodes, "slurmctld", "munged"):
            self._end(name, signal.SIGKILL)
            self._kill_jobs(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _daemon(self, name: str, *argv: str) -> None:
        log = (self.folder / "log" / f"{name}.out").open("ab")
        named = (
            "setpriv",
            "--pdeathsig=KILL",
            "unshare",
            "--uts",
            "sh",
            "-c",
            'hostname localhost && exec "$@"',
            "sh",
            *argv,
        )
        with log:
            self._started[name] = subprocess.Popen(
                named,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._started.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait(PATIENCE_S)

    def _kill_jobs(self, name: str) -> None:
        """Kill all processes of the jobs of a node."""
        for pid in self._of_node(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _of_node(self, name: str) -> Iterator[int]:
        """Yield the processes of jobs on a node: slurmstepd, which has the log open, and what it started."""
        marks = {f"SLURMD_NODENAME={name}".encode(), f"SLURM_CONF={self.conf}".encode()}
        log = str(self.folder / "log" / f"slurmd-{name}.log")
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                started = marks <= set((entry / "environ").read_bytes().split(b"\0"))
                stepd = (entry / "comm").read_text().startswith("slurmstepd")
                if started or (stepd and any(str(file.readlink()) == log for file in (entry / "fd").iterdir())):
                    yield int(entry.name)


def until(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    last = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > last:
            raise TimeoutError(f"waited {patience_s:.0f} s for {what}")
        time.sleep(0.05)


def free_ports(count: int) -> Iterator[int]:
    """Yield ports that are free now, below those that the system gives to connections, which might take one."""
    with contextlib.ExitStack() as held:
        found = 0
        while found < count:
            made = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                made.bind(("127.0.0.1", secrets.choice(PORTS)))
                found += 1
                yield made.getsockname()[1]
