"""`cranny place`: one job on a cluster in its present state; `cranny policies`: what can place it."""

import re
from typing import TYPE_CHECKING, Annotated

from cranny.cli import completion, options
from cranny.cli.console import out, print_json, print_table, say
from cranny.cli.options import option
from cranny.model.collective import DEFAULT_COLLECTIVE
from cranny.model.errors import InputError
from cranny.model.validate import whole
from cranny.policies import DEFAULT_POLICY, TABLE

if TYPE_CHECKING:
    from cranny.core.state import ClusterState
    from cranny.model.cluster import Cluster


def place(
    gpus: Annotated[int, option("--gpus", "Workers of the job, one GPU each.", whole, short="-g")],
    policy: Annotated[
        str, option("--policy", "See `cranny policies`; or `all`.", short="-p", autocompletion=completion.policies)
    ] = DEFAULT_POLICY,
    cluster: options.ClusterOption = options.DEFAULT_CLUSTER,
    link_gbps: options.LinkOption = 100.0,
    oversubscription: options.OversubscriptionOption = 1.0,
    pat_gbps: options.PatOption = None,
    free: Annotated[
        str | None, option("--free", "Free GPUs of each machine, such as 4,3,2,1 (default: all).")
    ] = None,
    model: Annotated[str, option("--model", "A model of the profile library.", short="-m")] = "resnet50",
    collective: Annotated[
        str, option("--collective", "How the workers communicate.", autocompletion=completion.collectives)
    ] = DEFAULT_COLLECTIVE,
    seed: options.SeedOption = 0,
    profiles: options.ProfilesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Place one job and say why it goes there, or why it must wait.

    Example: cranny place --gpus 4 --cluster 1x4x4 --free 4,3,2,1 --policy all
    """
    from cranny.core.protocol import Placer
    from cranny.model.job import Job
    from cranny.policy_choice import seeded_policy

    names = [name for name in TABLE if name != "exact"] if policy == "all" else options.split_policies(policy)
    built = options.read_cluster(cluster, link_gbps, oversubscription, pat_gbps)
    job = Job(id="new", gpus=gpus, model=options.read_profiles(profiles)[model], collective=collective)
    if gpus > built.gpus:
        raise InputError(f"--gpus: the job needs {gpus} GPUs, the cluster has {built.gpus}")
    state = with_free(built, free)
    decisions = []
    for name in names:
        placer = seeded_policy(name, seed)
        if not isinstance(placer, Placer):
            raise InputError(f"policy {name!r} places many jobs at a time; use `cranny simulate`")
        view = state.snapshot()
        placement = placer.place(job, view)
        decisions.append(
            {
                "policy": name,
                "machines": list(placement.machines) if placement else None,
                "text": placement.explain() if placement else f"job must wait: {placer.why_wait(job, view)}",
                "facts": placement.facts if placement else {},
            }
        )
    if as_json:
        print_json(decisions if len(decisions) > 1 else decisions[0])
        return
    for each in decisions:
        if len(decisions) > 1:
            out.print(str(each["policy"]), style="bold")
        say(str(each["text"]))


def with_free(cluster: "Cluster", free: str | None) -> "ClusterState":
    """Return a state in which each machine has as many GPUs free as the list says."""
    from cranny.core.state import ClusterState
    from cranny.model.job import Job
    from cranny.model.placement import Placement

    state = ClusterState(cluster)
    if free is None:
        return state
    counts = free.split(",")
    if len(counts) != len(cluster.machines):
        raise InputError(f"--free: names {len(counts)} machines, the cluster has {len(cluster.machines)}")
    for machine, text in enumerate(counts):
        size = cluster.machines[machine].gpus
        if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or int(text) > size:
            raise InputError(f"--free: machine {machine}: must be from 0 to {size}, not {text.strip()!r}")
        held = size - int(text)
        if held:
            state.place(Job(id=f"background-{machine}", gpus=held), Placement((machine,) * held))
    return state


def policies(as_json: options.JsonOption = False) -> None:
    """List the policies, what each does, and the paper it comes from.

    Example: cranny policies --json
    """
    from cranny.core.queue import ORDERS

    if as_json:
        known = {name: {"about": e.about, "paper": e.paper, "order": e.order} for name, e in TABLE.items()}
        print_json({"policies": known, "orders": ORDERS, "default": DEFAULT_POLICY})
        return
    columns = ("policy", "what it does", "paper", "queue")
    rows = ((name, each.about, each.paper, each.order) for name, each in TABLE.items())
    print_table(columns, rows, words=columns[1:3])
    out.print()
    print_table(("queue order", "which job is next"), ORDERS.items(), words=("which job is next",))
    say("", f"{DEFAULT_POLICY} is the policy of commands and calls that name none")
