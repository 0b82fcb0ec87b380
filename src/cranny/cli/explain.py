"""`cranny explain`: why a job of a trace or of a server is placed where it is, and why it waits."""

from typing import Annotated

from cranny.cli import completion, options
from cranny.cli.client import Remote, path_of, remote_options
from cranny.cli.console import progress
from cranny.cli.jobs import explanation_lines
from cranny.cli.options import argument
from cranny.model.errors import InputError
from cranny.policies import DEFAULT_POLICY

TRACE_HELP = "A trace file, or a preset to generate from: philly, itp, acme. Omitted: JOB is of a server."


@remote_options
@options.scenario_options("price")
def explain(
    trace: Annotated[str, argument("[TRACE]", TRACE_HELP, autocompletion=completion.presets)],
    shared: options.ScenarioOptions,
    job_id: Annotated[str | None, argument("JOB", "The id of a job.", show_default=False)] = None,
    policy: options.PolicyOption = DEFAULT_POLICY,
    *,
    remote: Remote,
) -> None:
    """Say why a job waits or waited, and why it was placed where it was.

    With a trace, it is replayed up to the job. With a job alone, the server that runs it is asked; the options
    about clusters and policies then have no effect.

    Example: cranny explain philly philly-000042 --policy cranny --cluster 64x8x8

    Example: cranny explain job-17
    """
    if job_id is None:
        why = remote.client.get(f"{path_of(trace)}/explain")
        remote.show(why, f"{why['job']} {why['status']}", *explanation_lines(why))
        return
    from cranny.analysis.explain import explain as run

    options.split_policies(policy)
    scenario = shared.scenario(trace, [policy])
    ids = scenario.whole_trace.frame["job_id"]
    if len(ids) and job_id not in ids:  # refused before anything is replayed
        known = f"the first is {ids[0]!r}, the last {ids[-1]!r}"
        raise InputError(f"there is no job {job_id!r} in {scenario.whole_trace.name}; {known}")
    with progress(policy, len(ids)) as tick:
        story = run(scenario, job_id, tick)
    remote.show(story.facts(), story.text())
