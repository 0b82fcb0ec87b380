"""`cranny explain`: why a job of a trace was placed where it was, and why it waited."""

from typing import Annotated

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress


def explain(
    trace: options.TraceArgument,
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job in the trace.")],
    policy: Annotated[str, typer.Option("--policy", "-p", help="See `cranny policies`.")] = "titan",
    cluster: options.ClusterOption = options.DEFAULT_CLUSTER,
    link_gbps: options.LinkOption = 100.0,
    oversubscription: options.OversubscriptionOption = 1.0,
    pat_gbps: options.PatOption = None,
    jobs: options.JobsOption = 5000,
    load: options.LoadOption = 0.8,
    trace_format: options.FormatOption = "auto",
    strict: options.StrictOption = None,
    order: options.OrderOption = None,
    period: options.PeriodOption = 0.0,
    network: options.NetworkOption = "isolated",
    collective: options.CollectiveOption = None,
    seed: options.SeedOption = 0,
    profiles: options.ProfilesOption = None,
    policy_options: options.SettingsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace up to one job and say why it waited and why it was placed where it was.

    Example: cranny explain philly philly-000042 --policy titan --cluster 64x8x8
    """
    from cranny.explain import explain as run

    options.split_policies(policy)
    built = options.read_cluster(cluster, link_gbps, oversubscription, pat_gbps)
    models = options.read_profiles(profiles)
    jobs_in = options.read_or_generate(
        trace, built, jobs, load, seed, models, trace_format=trace_format, strict=strict
    )
    with progress(policy, len(jobs_in)) as tick:
        story = run(
            built,
            jobs_in,
            job_id,
            policy,
            network,
            seed,
            order=order,
            collective=collective,
            period_s=period,
            options=options.read_settings(policy_options),
            profiles=models,
            progress=tick,
        )
    if as_json:
        print_json(story.facts())
    else:
        out.print(story.text(), soft_wrap=True, markup=False)
