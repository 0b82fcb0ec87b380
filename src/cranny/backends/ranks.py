"""The processes of an attempt: command, environment and log of every rank."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cranny.backends import torchrun_rank
from cranny.backends.protocol import BackendError, Launch, Rank, numbered
from cranny.backends.rank_logs import log_of, log_of_agent, pipe_of
from cranny.channel.files import FOLDER_VARIABLE, TOKEN_VARIABLE

ADDRESS = "127.0.0.1"
CHANNEL = "channel"  # the folder of the channel in the log folder
LAUNCH = "CRANNY_LAUNCH"  # the variable that identifies processes of an attempt, wherever they moved


class RankCommand(NamedTuple):
    """A process to start."""

    argv: list[str]
    env: dict[str, str]
    log: str


def commands(
    what: Launch, base: Mapping[str, str], devices: Mapping[Rank, str], port: int, token: str, log_dir: Path
) -> list[RankCommand]:
    """Return the processes of an attempt: its ranks, or the torchrun agents of its machines.

    `devices` are the CUDA devices of ranks; empty where a rank has none. The variables of a job override `base`,
    and ours override those of the job.
    """
    machines: dict[int, list[Rank]] = {}  # in the order of their first ranks
    for rank in what.ranks:
        machines.setdefault(rank.machine, []).append(rank)
    made: list[tuple[int, RankCommand]] = []
    every = ",".join(map(str, numbered([rank.machine for rank in what.ranks], torchrun=what.torchrun)))
    for node, (machine, ranks) in enumerate(machines.items()):
        shared = {
            **base,
            **what.env,
            LAUNCH: token,
            "MASTER_ADDR": ADDRESS,
            "MASTER_PORT": str(port),
            # As torchrun has it: all GPUs of the job on this machine, in the order of LOCAL_RANK.
            "CUDA_VISIBLE_DEVICES": ",".join(devices[rank] for rank in ranks if devices[rank]),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order of nvidia-smi
            "CRANNY_JOB_ID": what.job_id,
            "CRANNY_ATTEMPT": str(what.attempt),
            "CRANNY_MACHINE": str(machine),
            "CRANNY_MACHINES": every,
            FOLDER_VARIABLE: str(log_dir / CHANNEL),
            TOKEN_VARIABLE: token,
            **_parameter_server(what),
        }
        if what.torchrun:
            made.append((node, _agent(what, shared, ranks, node, len(machines), log_dir)))
            continue
        for local, rank in enumerate(ranks):
            env = {
                **shared,
                "RANK": str(rank.rank),
                "WORLD_SIZE": str(len(what.ranks)),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(len(ranks)),
                "NODE_RANK": str(node),
                "GROUP_RANK": str(node),
                "GROUP_WORLD_SIZE": str(len(machines)),
                "CRANNY_GPU": str(rank.gpu),
            }
            made.append((rank.rank, RankCommand(list(what.argv), env, str(log_of(log_dir, rank.rank)))))
    return [command for _, command in sorted(made, key=lambda pair: pair[0])]


def _parameter_server(what: Launch) -> dict[str, str]:
    """Return where the parameter server is, and the racks whose switches aggregate; nothing if there is none."""
    if what.server is None:
        return {}
    racks = what.aggregate
    named = str(racks).lower() if isinstance(racks, bool) else ",".join(map(str, racks))
    return {"CRANNY_PARAMETER_SERVER": str(what.server), "CRANNY_AGGREGATE": named}


def _agent(
    what: Launch, shared: dict[str, str], ranks: list[Rank], node: int, nodes: int, log_dir: Path
) -> RankCommand:
    """Return the torchrun agent of a machine.

    torchrun numbers ranks machine by machine, whatever their order in the placement. It restarts nothing: retries
    are left to the service.
    """
    torchrun = shutil.which("torchrun", path=shared["PATH"])
    if torchrun is None:
        raise BackendError(f"job {what.job_id!r}: torchrun not found; install PyTorch")
    argv = [
        torchrun,
        f"--nnodes={nodes}",
        f"--nproc-per-node={len(ranks)}",
        f"--node-rank={node}",
        f"--master-addr={shared['MASTER_ADDR']}",
        f"--master-port={shared['MASTER_PORT']}",
        f"--local-addr={ADDRESS}",
        "--max-restarts=0",
        "--no-python",
        # Gives every rank its log file and CRANNY_GPU, which torchrun does not know.
        *(sys.executable, "-I", "-S", torchrun_rank.__file__, str(pipe_of(log_of(log_dir, "{rank}")))),
        # `torchrun train.py` runs with the Python that belongs to torchrun.
        *([str(Path(torchrun).with_name("python3"))] if what.argv[0].endswith(".py") else []),
        *what.argv,
    ]
    env = {**shared, "CRANNY_GPUS": ",".join(str(rank.gpu) for rank in ranks)}
    return RankCommand(argv, env, str(log_of_agent(log_dir, node)))
