"""`cranny demo`: what Titan saves, on a realistic workload, in one command."""

import time
from pathlib import Path
from typing import Annotated

from cranny.cli import options
from cranny.cli.console import err, out, progress
from cranny.cli.simulate import show


def demo(
    jobs: options.JobsOption = 6000,
    load: options.LoadOption = 0.75,
    seed: options.SeedOption = 0,
    cluster: options.ClusterOption = options.DEFAULT_CLUSTER,
    policies: Annotated[str, options.option("--policies", "Names with commas between.", short="-p")] = (
        options.DEFAULT_POLICIES
    ),
    folder: Annotated[Path, options.option("--out", "Where the page and the picture go.")] = Path("out"),
    as_json: options.JsonOption = False,
) -> None:
    """Compare Titan with its rivals on a generated Microsoft-like workload; write a page and a picture.

    Example: cranny demo --jobs 20000
    """
    from cranny.report.summary_svg import write_picture
    from cranny.run import run_many

    began = time.perf_counter()
    names = options.split_policies(policies)
    options.check_folder(folder, "--out")
    scenario = options.ScenarioOptions(cluster=cluster, jobs=jobs, load=load, seed=seed).scenario("itp", names)
    if not as_json:
        where = scenario.cluster.describe()
        err.print(
            f"{len(scenario.whole_trace):,} jobs that look like Microsoft's ITP trace on {where}", style="dim"
        )
    with progress("comparing", len(names)) as tick:
        results = run_many(scenario.with_policies(names), progress=tick)
    folder.mkdir(parents=True, exist_ok=True)
    show(results, folder / "demo.html", None, as_json=as_json)
    picture = write_picture(results, folder / "demo.svg")
    if not as_json:
        out.print(f"picture: {picture}", soft_wrap=True, markup=False)
        err.print(f"done in {time.perf_counter() - began:.1f} s", style="dim")
