"""`cranny defrag`: moves of running jobs that save more than their restarts cost, on a log or on a server."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cranny.cli import completion, options
from cranny.cli.client import Remote, remote_options
from cranny.cli.console import out, print_table, progress, say
from cranny.cli.options import argument, option
from cranny.model.errors import InputError
from cranny.model.validate import counted, not_negative, positive, seconds
from cranny.policies import DEFAULT_POLICY

if TYPE_CHECKING:
    from cranny.scenario import Scenario

SECONDS_PER_HOUR = 3600.0
PATH = "/api/v1/moves"
TRACE_HELP = "A trace file, or a preset to generate from: philly, itp, acme. Omitted: the jobs of a server."
AT_HELP = "Second of the trace (default: when running jobs move most bytes between machines)."
EVERY_HELP = "Simulate the whole trace without moves, and with those that pay every so many seconds."
MARGIN_HELP = "What must be gained beyond the restarts, as a part of what these cost."
MOVABLE_HELP = "Jobs of a trace that may move: those that state a restart_s, all, or none."
DURATIONS_HELP = "How long jobs of a trace run: as stated there, or learned from the jobs that ended before."
APPLY_HELP = "Only list the moves, or make them on a server."
COLUMNS = ("for", "job", "GPUs", "from", "to", "gain", "cost")  # in GPU-hours


@remote_options
@options.scenario_options()
def defrag(
    trace: Annotated[
        str | None, argument("[TRACE]", TRACE_HELP, show_default=False, autocompletion=completion.presets)
    ] = None,
    policy: options.PolicyOption = DEFAULT_POLICY,
    at: Annotated[float | None, option("--at", AT_HELP, seconds)] = None,
    every: Annotated[float | None, option("--every", EVERY_HELP, positive)] = None,
    movable: Annotated[Literal["stated", "all", "none"], option("--movable", MOVABLE_HELP)] = "stated",
    margin: Annotated[float, option("--margin", MARGIN_HELP, not_negative)] = 1.0,
    durations: Annotated[Literal["stated", "learned"], option("--durations", DURATIONS_HELP)] = "stated",
    dry_run: Annotated[bool, option("--dry-run/--apply", APPLY_HELP)] = True,
    *,
    shared: options.ScenarioOptions,
    remote: Remote,
) -> None:
    """List moves of running jobs that save more than their restarts cost: to empty machines, or to start a job.

    With a trace, it is replayed up to a moment. Without, the server is asked, on which only jobs move whose job
    file has `movable: true`; the options about traces, clusters and policies then have no effect.

    Example: cranny defrag philly --cluster 8x8x8 --at 36000 --policy best-fit --movable all

    Example: cranny defrag --price-per-gpu-hour 2.5 --apply
    """
    if trace is None:
        _on_server(remote, margin, shared.price, dry_run=dry_run)
        return
    if not dry_run:
        raise InputError("--apply: jobs of a trace do not move; leave it out to move those of a server")
    from cranny.analysis.defrag import log_rules, moves_at, repeated_moves
    from cranny.policies.cranny.durations import DurationEstimates

    options.split_policies(policy)
    scenario = shared.scenario(trace, [policy])
    learned = DurationEstimates() if durations == "learned" else None
    rules = log_rules(movable, margin, learned)
    about = f"{policy} on {scenario.trace_name}"
    with progress(policy, len(scenario.whole_trace)) as tick:
        if every is None:
            found = moves_at(scenario, at, rules, learned, tick).facts(shared.price)
            shown: Sequence[str] = (*_moment(about, found), *_totals(found))
        else:
            found = repeated_moves(scenario, every, rules, learned, tick).facts()
            shown = list(_saved(about, found, scenario))
    if remote.as_json or every is not None:
        remote.show(found, *shown)
        return
    first, *rest = shown
    out.print(first, style="bold", markup=False, soft_wrap=True)
    _show(found)
    say(*rest)


def _on_server(remote: Remote, margin: float, price: float, *, dry_run: bool) -> None:
    """Show the moves that a server recommends, or let it make them."""
    query = {"margin": margin, "price_per_gpu_hour": price}
    found = remote.client.get(PATH, **query) if dry_run else remote.client.send("POST", PATH, query)
    if remote.as_json:
        remote.show(found)
        return
    _show(found)
    say(
        *_totals(found),
        *(["made" if not dry_run else "cranny defrag --apply makes them"] if found["moves"] else []),
    )


def _show(found: Mapping[str, Any]) -> None:
    """Print the moves, group by group, with gain and cost in GPU-hours."""
    rows = []
    for group in found["groups"]:
        why, gain = _purpose(group), f"{_hours(group['gain']['total_gpu_s'])}"
        for move in group["moves"]:
            where = (_machines(move["from"]), _machines(move["to"]))
            rows.append((why, move["job"], str(move["gpus"]), *where, gain, _hours(move["cost_gpu_s"])))
            why = gain = ""
    if rows:
        print_table(COLUMNS, rows, numbers=("GPUs", "gain", "cost"), words=("for", "from", "to"))


def _purpose(group: Mapping[str, Any]) -> str:
    """Say what a group of moves is for."""
    if group["starts"] is not None:
        return f"room for {group['starts']}"
    return {"empty": "idle", "free": "idle sooner", "gather": "links"}[group["purpose"]]


def _machines(gpus: Mapping[str, int]) -> str:
    """Name up to two machines, and how many more."""
    names = list(gpus)
    more = len(names) - 2
    return ", ".join(names[:2]) + (f" and {more} more" if more > 0 else "")


def _moment(about: str, found: Mapping[str, Any]) -> Iterator[str]:
    running, waiting = counted(found["running"], "job"), f"{found['waiting']:,}"
    runs, wait = "runs" if found["running"] == 1 else "run", "waits" if found["waiting"] == 1 else "wait"
    where = counted(found["used_machines"], "machine")
    yield f"{about} at {found['at_s']:,.0f} s: {running} {runs} on {where}, {waiting} {wait}"
    if not found["movable"] and found["running"]:
        yield "no running job states that it may move (restart_s); --movable all lets every job"


def _totals(found: Mapping[str, Any]) -> Iterator[str]:
    if not found["moves"]:
        yield "no moves pay now"
        return
    saved, cost = _hours(found["gain_gpu_s"]), _hours(found["cost_gpu_s"])
    yield f"{counted(found['moves'], 'move')}: gain {saved} GPU-hours, restarts cost {cost}"
    price = f"${found['price_per_gpu_hour']:,.2f} per GPU-hour"
    idle = counted(len(found["emptied"]), "machine")
    yield (
        f"{idle} would be idle: ${found['saved_money_per_hour']:,.2f} an hour at {price}; in use for less time, "
        f"machines save ${found['saved_money']:,.2f} in all"
    )


def _saved(about: str, found: Mapping[str, Any], scenario: "Scenario") -> Iterator[str]:
    """Yield what moves save on a whole trace."""
    before, after = found["without"], found["with"]
    hours, saved = before["machine_hours"], found["saved_machine_hours"]
    gpus = scenario.cluster.gpus / len(scenario.cluster.machines)
    price = scenario.price_per_gpu_hour
    part = f" ({saved / hours:.1%})" if hours else ""
    yield f"{about}: {hours:,.0f} machine-hours without moves, {after['machine_hours']:,.0f} with"
    yield f"saved: {saved:,.0f} machine-hours{part}, ${saved * gpus * price:,.0f} at ${price:,.2f} per GPU-hour"
    until = found["machine_hours_until_last_arrival"]
    yield f"until the last job came: {until['without']:,.0f} without, {until['with']:,.0f} with"
    groups = ", ".join(f"{count:,} to {purpose}" for purpose, count in found["groups"].items()) or "none"
    yield f"groups of moves: {groups}; restarts cost {found['restart_gpu_hours']:,.1f} GPU-hours"
    for name, what in (("mean_jct_s", "mean JCT"), ("p99_jct_s", "p99 JCT"), ("mean_wait_s", "mean wait")):
        yield f"{what}: {before[name]:,.0f} s without, {after[name]:,.0f} s with"


def _hours(gpu_s: float) -> str:
    hours = gpu_s / SECONDS_PER_HOUR
    return f"{hours:,.2f}" if abs(hours) < 10 else f"{hours:,.0f}"
