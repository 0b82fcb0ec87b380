"""Titan's evaluation put together: facts, results.claims, tables and plots of what was run."""

from collections.abc import Mapping, Sequence
from functools import partial

from cranny.repro.experiment import Cell, Results
from cranny.repro.page import Reproduction, Section
from cranny.repro.plots import STYLES, Axes, Figure, Line, canvas, draw_bars, draw_lines
from cranny.repro.titan import results
from cranny.repro.titan.beyond import beyond
from cranny.repro.titan.paper import TEXT
from cranny.repro.titan.replays import Setup, TraceRun
from cranny.repro.titan.testbed import GPUS, MODELS, SCHEMES, SHOWN, WORKERS, PlacementRun, Testbed, layouts

NAMES = {policy: name if name.lower() == policy else TEXT.label(policy) for policy, name in TEXT.names.items()}
SUMS = (3, 7)  # figures of sums over time, which have no mean line
BACKGROUND, FREE = "#b9b6b0", "#ffffff"


def reproduction(
    replays: Results[Setup, TraceRun] | None,
    runs: Mapping[str, Testbed] | None,
    experiments: Sequence[int],
    quick: str = "",
) -> Reproduction:
    """Make tables, claims and plots of the replays and of the runs on the testbed.

    Those are by the key of their reading, ours has none. `quick` says how many jobs and seeds were run, if too few
    for verdicts.
    """
    made = results.trace_tables(replays, experiments, quick=bool(quick)) if replays is not None else []
    testbed = results.testbed_tables(runs, experiments) if runs is not None else []
    verdicts = [] if quick else [results.verdict_sheet(made, testbed)]
    sections = [Section("Verdicts", verdicts)] if verdicts else []
    for figure in TEXT.figures:
        mine = [table for table in made if table.figure == figure]
        if mine and replays is not None:
            title, stem = f"Fig. {figure.number}: {figure.title}", f"fig{figure.number}"
            rows = {stem: [row for table in mine for row in table.records()]}
            plots = {stem: partial(_lines, replays, mine)}
            sections.append(Section(title, [*map(results.trace_sheet, results.by_trace(mine))], plots, rows))
    if runs is not None:
        sections.append(Section("Fig. 8: placements on the testbed", (), {"fig8": partial(_layouts, runs[""])}))
    for each in testbed:
        title, stem = f"Fig. {each.figure.number}: {each.figure.title}", f"fig{each.figure.number}"
        bars = {model: {str(workers): each.all[model, workers] for workers in WORKERS} for model in MODELS}
        plots = {stem: partial(draw_bars, bars, f"{each.figure.title}, {each.figure.unit}", NAMES)}
        sections.append(Section(title, [results.testbed_sheet(each)], plots, {stem: each.records()}))
    shown = [  # the traces that the paper gives numbers for, and all verdicts
        results.trace_sheet(both, brief=True)
        for both in results.by_trace(made)
        if both[0].paper or (not both[0].figure.on and both[0].trace.key == "itp")
    ]
    values = {
        "figures": [row for table in made for row in table.records()],
        "testbed": [row for table in testbed for row in table.records()],
    }
    brief = [*shown, *map(results.testbed_sheet, testbed), *verdicts]
    claims = [*results.claims(made, testbed), *beyond(made), TEXT.not_tested]
    left_open = results.left_open(made, testbed)
    return Reproduction(TEXT, _facts(replays, runs), claims, sections, values, brief, left_open, quick)


def _facts(replays: Results[Setup, TraceRun] | None, runs: Mapping[str, Testbed] | None) -> list[str]:
    """Say what was run, and what was assumed."""
    facts: list[str] = []
    if replays is not None:
        ours = [setup for setup in replays.setups if not setup.reading]
        jobs = {setup.trace: replays.of(setup, "titan")[0].jobs for setup in ours}
        counts = ", ".join(f"{trace.label} {jobs[trace.key]:,}" for trace in TEXT.traces)
        source, seeds = "generated" if replays.generated else "real", replays.seeds
        facts += TEXT.say("jobs", source, "cluster", "seeds", "network", "part", counts=counts, seeds=seeds)
    if runs is not None:
        facts += TEXT.say("testbed", layouts=runs[""].seeds)
    return facts


def _lines(replays: Results[Setup, TraceRun], mine: Sequence[results.TraceTable]) -> Figure:
    """Draw a figure with the network that it is compared with first."""
    figure = mine[0].figure
    panels: dict[str, list[Line]] = {}
    for table in mine:
        for policy in [policy for policy in table.ours if table.first and policy in STYLES]:
            run = replays.of(Setup(table.trace.key, figure.network), policy)[0]
            values = [None if value is None else value * figure.factor for value in run.lines[figure.column]]
            mean = None if figure.number in SUMS else table.ours[policy].mean
            panels.setdefault(table.trace.label, []).append(Line(policy, run.times_s, values, mean))
    unit = f", {figure.unit}" if figure.unit else ""
    return draw_lines(panels, f"{figure.title}{unit}", NAMES)


def _layouts(runs: Testbed) -> Figure:
    """Draw one layout with 6 to 12 workers of VGG-16 under every scheme, and ResNet-50 where Tiresias differs.

    A column is a machine: grey squares are background jobs, numbered ones the ranks of the job.
    """
    kinds = [(scheme, "vgg16") for scheme in SCHEMES]
    kinds.insert(kinds.index(("tiresias", "vgg16")), ("tiresias", "resnet50"))
    number = list(layouts()).index(SHOWN)
    wide, high = len(SHOWN) + 1.5, GPUS + 2.0  # of a layout, with space around it
    across, down = len(WORKERS) - 1, len(kinds)
    figure, (axis,) = canvas(1, panel=(0.25 * wide * across, 0.25 * high * down))
    for row, (scheme, model) in enumerate(kinds):
        for column, workers in enumerate(WORKERS[1:]):
            cell = Cell((model, workers), scheme, number)
            _layout(axis, cell, runs.runs.get(cell), column * wide, -row * high)
    axis.set(xlim=(-0.2, wide * across), ylim=(-high * (down - 1) - 0.2, GPUS + 1), aspect="equal")
    axis.axis("off")
    return figure


def _layout(axis: Axes, cell: Cell[tuple[str, int]], run: PlacementRun | None, left: float, bottom: float) -> None:
    """Draw one layout with its lower left corner there."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    taken = [GPUS - free for free in SHOWN]
    colours = {
        (machine, gpu): BACKGROUND if gpu < taken[machine] else FREE
        for machine in range(len(SHOWN))
        for gpu in range(GPUS)
    }
    for rank, machine in enumerate(run.machines if run else ()):
        colours[machine, taken[machine]] = STYLES[cell.scheme][0]
        at = left + machine + 0.45, bottom + taken[machine] + 0.42
        axis.text(*at, str(rank), size=6, color="white", ha="center", va="center")
        taken[machine] += 1
    squares = [Rectangle((left + machine, bottom + gpu), 0.9, 0.9) for machine, gpu in colours]
    axis.add_collection(
        PatchCollection(squares, facecolor=list(colours.values()), edgecolor="#6b7076", linewidth=0.5)
    )
    model, workers = cell.setup
    title = f"{cell.scheme}, {model}, {workers} workers" + ("" if run else ": must wait")
    axis.text(left + len(SHOWN) / 2, bottom + GPUS + 0.2, title, size=7, ha="center")
