"""`cranny advise`: which policy would suit a job log, by how much, and why."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cranny.cli import completion, options
from cranny.cli.console import err, out, print_json, progress
from cranny.cli.options import argument, option
from cranny.model.errors import InputError, unknown
from cranny.model.job import RESTART_S
from cranny.model.validate import whole
from cranny.policies import DEFAULT_POLICY

if TYPE_CHECKING:
    from cranny.analysis.advise import Advice

LOG_HELP = "A job log or trace file, or a preset to generate from: philly, itp, acme."
POLICIES_HELP = "To try, with commas between (default: cranny and its strongest rivals)."
SAMPLE_HELP = "Replay at most so many consecutive jobs of the log; 0 for all."
BY_HELP = "What decides: mean_jct_s, p99_jct_s, machine_hours, mean_slowdown, or all alike."


@options.scenario_options("order", "period", "price", "policy_options", cluster="", network="steady")
def advise(
    log: Annotated[str, argument("LOG", LOG_HELP, autocompletion=completion.presets)],
    shared: options.ScenarioOptions,
    policies: Annotated[
        str,
        option("--policies", POLICIES_HELP, short="-p", show_default=False, autocompletion=completion.policies),
    ] = "",
    by: Annotated[str, option("--by", BY_HELP)] = "all",
    sample: Annotated[int, option("--sample", SAMPLE_HELP, whole, least=0)] = 2_000,
    restart_s: options.RestartOption = RESTART_S,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say which policy would suit a job log, by how much it leads, why, what it costs, and how sure that is.

    The log is replayed under a handful of policies. Without --cluster it is replayed on a made-up one, of machines
    with 8 GPUs, that it would load to 80 %.

    Example: cranny advise sacct.txt --cluster my.yaml --oversubscription 4
    """
    from cranny.analysis.advise.advice import ALL, candidates
    from cranny.analysis.advise.advice import advise as run
    from cranny.analysis.advise.policy_outcome import METRICS
    from cranny.analysis.advise.sentences import facts_and_sentences
    from cranny.analysis.advise.workload import Workload

    names = options.split_policies(policies) if policies else []
    if by not in (*METRICS, ALL):
        raise InputError(f"--by: {unknown('metric', by, (*METRICS, ALL))}")
    if not shared.cluster:
        shared = replace(shared, cluster=_made_up(log, shared))
        err.print(f"no --cluster given; made up for this log: {shared.cluster}", style="dim")
    scenario = shared.scenario(log, names or [DEFAULT_POLICY])
    names = names or list(candidates(Workload.of(scenario.whole_trace, scenario.cluster)))
    with progress("replaying", len(names)) as tick:
        found = run(scenario, names, by=by, sample=sample, restart_s=restart_s, processes=processes, progress=tick)
    if as_json:
        print_json(facts_and_sentences(found))
    else:
        _show(found)


def _made_up(log: str, shared: options.ScenarioOptions) -> str:
    """Return the shape of a cluster that suits a log, if the log is a file."""
    from cranny.analysis.advise.workload import fitting_shape
    from cranny.traces.generate import presets

    if log in presets() and not Path(log).exists():
        return options.DEFAULT_CLUSTER
    cluster = options.read_cluster(options.DEFAULT_CLUSTER)
    trace = shared.read_trace(log, cluster, options.read_profiles(shared.profiles))
    if not len(trace):
        raise InputError(f"{log}: has no jobs")
    return "x".join(map(str, fitting_shape(trace)))


def _show(advice: "Advice") -> None:
    """Print the workload, the table, the verdict, the reasons and the costs."""
    from cranny.analysis.advise.sentences import costs, reasons, results_table, verdict, workload_lines
    from cranny.report.text_table import terminal_table

    _section("The log", workload_lines(advice))
    out.print()
    out.print(terminal_table(results_table(advice)))
    _section("Which policy", verdict(advice))
    _section("\nWhy", reasons(advice))
    _section("\nWhat it costs, and what this rests on", costs(advice))


def _section(title: str, lines: list[str]) -> None:
    out.print(title, style="bold")
    for line in lines:
        out.print(f"- {line}", markup=False)
