"""What Slurm 22.05 and kubectl print, cut short."""

import json
from collections.abc import Sequence

NODE = """\
NodeName={name} Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=1.25
   AvailableFeatures=ib
   ActiveFeatures=ib
   Gres={gres}
   GresDrain=N/A
   GresUsed=gpu:a100:0(IDX:N/A)
   NodeAddr={name} NodeHostName={name} Version=22.05.8
   OS=Linux 6.1.0-13-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)
   RealMemory=515000 AllocMem=0 FreeMem=500000 Sockets=2 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions={partitions}
   BootTime=2024-03-01T08:00:00 SlurmdStartTime=2024-03-01T08:01:00
   LastBusyTime=2024-03-02T08:00:00
   CfgTRES=cpu=64,mem=515000M,billing=64{tres}
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
   Reason=fan State=IDLE Gres=gpu:9 [root@2024-03-02T08:00:00]

"""
TOPOLOGY = """\
SwitchName=rack1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=rack2 Level=0 LinkSpeed=40 Nodes=n[3-4],cpu1
SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4],cpu1 Switches=rack[1-2]
"""


def node(name: str, gres: str, state: str = "IDLE", partitions: str = "gpu", tres: str = "") -> str:
    return NODE.format(name=name, gres=gres, state=state, partitions=partitions, tres=tres)


def kube_node(
    name: str,
    allocatable: dict[str, str],
    labels: dict[str, str] | None = None,
    *,
    unschedulable: bool = False,
    ready: str = "True",
) -> dict[str, object]:
    has = {"cpu": "64", "memory": "527000000Ki", "pods": "110", **allocatable}
    named = {"kubernetes.io/hostname": name, **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": named},
        "spec": {"unschedulable": True} if unschedulable else {},
        "status": {
            "allocatable": has,
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


def kube_list(nodes: Sequence[dict[str, object]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}, indent=4)
