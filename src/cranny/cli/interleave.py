"""`cranny interleave`: how well jobs share links, and the shifts at which they share them best."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json
from cranny.model.errors import InputError
from cranny.model.validate import positive

if TYPE_CHECKING:
    from cranny.network.interleave.affinity import SharedLink
    from cranny.network.interleave.shifts import Interleaving

PICTURES = (".svg", ".html", ".htm")
QUANTUM_HELP = "Iteration times are rounded to this, if that changes little; 1 if not given."


def interleave(
    jobs: Annotated[
        Path, typer.Argument(metavar="JOBS", help="Jobs and links, YAML or JSON; see docs/understand/cassini.md.")
    ],
    picture: Annotated[
        Path | None, typer.Option("--out", "-o", help="Draw circles and demand to this .svg or .html file.")
    ] = None,
    precision: Annotated[float, options.option("--precision", "Degrees by which circles are turned.")] = 5.0,
    quantum_ms: Annotated[float | None, options.option("--quantum-ms", QUANTUM_HELP)] = None,
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
        search = replace(search, quantum_s=_quantum_s(quantum_ms, links))
    found = solve(links, search)
    if found is None or not found.graph.links:
        raise InputError(f"{jobs}: no link carries more than one job")
    facts = _facts(found)
    if picture is not None:
        from cranny.report.circles_page import write_circles

        title = f"Interleaved jobs of {jobs.name}"
        facts["picture"] = str(write_circles(found, picture, title=title, command=options.command_line()))
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _quantum_s(quantum_ms: float, links: "Sequence[SharedLink]") -> float:
    """Return a quantum in seconds; refuse one to which no iteration time could be rounded."""
    quantum_s = positive(quantum_ms, "--quantum-ms:") / 1e3
    times_s = [(circle.iteration_s, job) for link in links for job, circle in link.circles.items()]
    shortest_s, job = min(times_s, default=(quantum_s, ""))
    if quantum_s > shortest_s:
        raise InputError(
            f"--quantum-ms: {quantum_ms:g} ms is longer than an iteration of job {job!r} ({shortest_s * 1e3:g} ms)"
        )
    return quantum_s


def _facts(found: "Interleaving") -> dict[str, Any]:
    """Return all that is known as plain values; scores are of the jobs' demand over time, not of angles."""
    from cranny.network.interleave.shifts import curve_scores

    graph = found.graph
    links: list[dict[str, Any]] = []
    scores = curve_scores(graph, {}), curve_scores(graph, found.shifts_s)
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
    from rich.table import Table

    for link in facts["links"]:
        how = (
            "best of all rotations" if link["search"] == "exact" else f"no rotation gets above {link['bound']:.3f}"
        )
        scores = f"score {link['before']:.3f} unshifted, [bold]{link['score']:.3f}[/bold] shifted"
        circle = f"{link['angles']} angles on a circle of {link['perimeter_ms']:g} ms"
        out.print(
            f"[bold]{_plain(link['name'])}[/bold], {link['gbps']:g} Gbps: {scores} ({how}; {circle})",
            soft_wrap=True,
        )
        if link["error"] > 5e-4:
            out.print(f"  iteration times were changed by up to {link['error'] * 100:.1f} % to share one circle")
        table = Table("job", "iteration", "up phases", "mean", "turns", "shift", box=None, header_style="bold")
        for column in table.columns[1:]:
            column.justify = "right"
        for job in link["jobs"]:
            table.add_row(
                _plain(job["name"]),
                f"{job['iteration_ms']:.5g} ms",
                f"{job['up_ms']:.5g} ms",
                f"{job['mean_gbps']:.3g} Gbps",
                str(job["turns"]),
                f"{facts['shifts_ms'][job['name']]:.1f} ms",
            )
        out.print(table)
        out.print()
    if facts["loops"]:
        out.print("Links tie jobs together in a loop: not all of them can have the shifts that suit them best.")
    if len(facts["links"]) > 1:
        out.print(f"mean score {facts['before']:.3f} unshifted, {facts['score']:.3f} shifted")
    if "picture" in facts:
        out.print(f"wrote {facts['picture']}", markup=False, soft_wrap=True)


def _plain(name: str) -> str:
    """Return a name from a file as text without markup."""
    from rich.markup import escape

    return escape(name)
