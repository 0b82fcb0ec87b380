"""`cranny interleave`: how well jobs share links, and the shifts at which they share them best."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape

from cranny.cli import options
from cranny.cli.console import out, print_json, print_table, say
from cranny.cli.options import argument, option
from cranny.model.errors import InputError
from cranny.model.validate import positive

if TYPE_CHECKING:
    from cranny.network.interleave.shifts import Interleaving

COLUMNS = ("job", "iteration", "up phases", "mean", "turns", "shift")
PICTURES = (".svg", ".html", ".htm")
QUANTUM_HELP = "Iteration times are rounded to this, if that changes little; 1 if not given."


def interleave(
    jobs: Annotated[Path, argument("JOBS", "Jobs and links, YAML or JSON; see docs/understand/cassini.md.")],
    picture: Annotated[
        Path | None, option("--out", "Draw circles and demand to this .svg or .html file.", short="-o")
    ] = None,
    precision: Annotated[float, option("--precision", "Degrees by which circles are turned.")] = 5.0,
    quantum_ms: Annotated[float | None, option("--quantum-ms", QUANTUM_HELP)] = None,
    profiles: options.ProfilesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Turn the circles of jobs against each other until they share their links best; print score and shifts.

    Example: cranny interleave docs/examples/interleave.yaml --out circles.svg
    """
    from cranny.network.interleave.interleave_file import read_links
    from cranny.network.interleave.shifts import interleave as solve
    from cranny.network.interleave.unified_circle import Search

    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise InputError(f"--out: must end in .svg or .html, not {picture.name!r}")
    options.check_file(picture, "--out")
    links = read_links(jobs, options.read_profiles(profiles))
    with options.named("precision"):
        search = Search(precision_deg=precision)
    if quantum_ms is not None:
        quantum_s = positive(quantum_ms, "--quantum-ms:") / 1e3
        times_s = [(circle.iteration_s, job) for link in links for job, circle in link.circles.items()]
        shortest_s, job = min(times_s, default=(quantum_s, ""))
        if quantum_s > shortest_s:  # no iteration time could be rounded to it
            time = f"an iteration of job {job!r} ({shortest_s * 1e3:g} ms)"
            raise InputError(f"--quantum-ms: {quantum_ms:g} ms is longer than {time}")
        search = replace(search, quantum_s=quantum_s)
    found = solve(links, search)
    if found is None or not found.graph.links:
        raise InputError(f"{jobs}: no link carries more than one job")
    facts = _facts(found)
    if picture is not None:
        from cranny.report.circles import write_circles

        title = f"Interleaved jobs of {jobs.name}"
        facts["picture"] = str(write_circles(found, picture, title=title, command=options.command_line()))
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _facts(found: "Interleaving") -> dict[str, Any]:
    """Return all that is known as plain values; scores are of the jobs' demand over time, not of angles."""
    from cranny.network.interleave.shifts import scores as link_scores

    graph = found.graph
    links: list[dict[str, Any]] = []
    scores = link_scores(graph, {}), found.scores
    for link, fit, before, after in zip(graph.links, graph.fits, *scores, strict=True):
        links.append(
            {
                "name": link.name,
                "gbps": link.gbps,
                "before": round(before, 6),
                "score": round(after, 6),
                "bound": round(fit.bound, 6),
                "search": fit.method,
                "perimeter_ms": round(fit.unified.perimeter_s * 1e3, 6),
                "angles": fit.unified.angles,
                "error": round(fit.unified.error, 6),
                "jobs": [
                    {
                        "name": job,
                        "iteration_ms": round(circle.iteration_s * 1e3, 6),
                        "up_ms": round(circle.up_s * 1e3, 6),
                        "mean_gbps": round(circle.mean_gbps, 6),
                        "turns": turns,
                        # The iteration time cancels: the circle may stretch it.
                        "rotation_deg": round(found.shifts_s[job] / circle.iteration_s / turns * 360.0, 6),
                    }
                    for (job, circle), turns in zip(link.circles.items(), fit.unified.turns, strict=True)
                ],
            }
        )
    return {
        "before": round(sum(link["before"] for link in links) / len(links), 6),
        "score": round(sum(link["score"] for link in links) / len(links), 6),
        "bound": round(found.bound, 6),
        "loops": found.method == "forest",
        "shifts_ms": {job: round(shift_s * 1e3, 6) for job, shift_s in found.shifts_s.items()},
        "links": links,
    }


def _show(facts: dict[str, Any]) -> None:
    """Print the scores and shifts for people."""
    for link in facts["links"]:
        exact, above = link["search"] == "exact", f"no rotation gets above {link['bound']:.3f}"
        scores = f"score {link['before']:.3f} unshifted, [bold]{link['score']:.3f}[/bold] shifted"
        circle = f"{link['angles']} angles on a circle of {link['perimeter_ms']:g} ms"
        why = f"{'best of all rotations' if exact else above}; {circle}"
        name = f"[bold]{escape(link['name'])}[/bold], {link['gbps']:g} Gbps"
        out.print(f"{name}: {scores} ({why})", soft_wrap=True)
        if link["error"] > 5e-4:
            out.print(f"  iteration times were changed by up to {link['error'] * 100:.1f} % to share one circle")
        rows = []
        for job in link["jobs"]:
            times = (f"{job['iteration_ms']:.5g} ms", f"{job['up_ms']:.5g} ms", f"{job['mean_gbps']:.3g} Gbps")
            shift = f"{facts['shifts_ms'][job['name']]:.1f} ms"
            rows.append((job["name"], *times, str(job["turns"]), shift))
        print_table(COLUMNS, rows, numbers=COLUMNS[1:])
        out.print()
    if facts["loops"]:
        out.print("Links tie jobs together in a loop: not all of them can have the shifts that suit them best.")
    if len(facts["links"]) > 1:
        out.print(f"mean score {facts['before']:.3f} unshifted, {facts['score']:.3f} shifted")
    if "picture" in facts:
        say(f"wrote {facts['picture']}")
