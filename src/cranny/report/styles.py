"""The name, the colour and the stroke of each run, the same wherever the run is shown.

The hues are those of Okabe and Ito (2008), which people with any colour vision can tell apart. We darken the
brightest of them on white, so that a thin line still shows, and lighten all of them on black.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cranny.model.errors import InputError
from cranny.policies import DEFAULT_POLICY
from cranny.sim.result import Result

# Settings that may distinguish two runs of one policy, in the order in which they are tried.
DISTINGUISHING = ("network", "order", "cluster", "links", "trace", "seed", "price_per_gpu_hour")


@dataclass(frozen=True, slots=True)
class Hue:
    """One colour, as seen on a light and on a dark page."""

    light: str
    dark: str


VERMILION = Hue("#cc5200", "#ff7f3f")
HUES = (
    Hue("#0072b2", "#4a9fe0"),  # blue
    Hue("#008f68", "#27b88c"),  # bluish green
    Hue("#bf5f93", "#e3a0c6"),  # reddish purple
    Hue("#cf8e00", "#f0b93a"),  # orange
    Hue("#2f9bd8", "#93d3f7"),  # sky blue
    Hue("#4d5358", "#8d949b"),  # black, softened
)
# The first three hues are far apart for any colour vision; from the fourth on the stroke differs as well.
DASHES = ("", "", "", "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True, slots=True)
class RunStyle:
    """How one run is named and drawn."""

    label: str
    hue: Hue
    dash: str
    strong: bool


def run_styles(results: Sequence[Result]) -> tuple[RunStyle, ...]:
    """Give each run its style: the default policy in vermilion with a heavy line, others in their order."""
    drawn = []
    others = strong = 0
    for result, label in zip(results, labels(results), strict=True):
        if policy_of(result) == DEFAULT_POLICY:
            drawn.append(RunStyle(label, VERMILION, DASHES[(strong + 2) % len(DASHES)], strong=True))
            strong += 1
        else:
            # After each full round of hues the strokes move on, so that no two of 36 runs look the same.
            dash = DASHES[(others + others // len(HUES)) % len(DASHES)]
            drawn.append(RunStyle(label, HUES[others % len(HUES)], dash, strong=False))
            others += 1
    return tuple(drawn)


def css_colours(hues: Mapping[str, Hue]) -> str:
    """Return the CSS that gives colours their names, for light and for dark pages."""
    light = "".join(f"--{name}:{hue.light};" for name, hue in hues.items())
    dark = "".join(f"--{name}:{hue.dark};" for name, hue in hues.items())
    return f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def policy_of(result: Result) -> str:
    """Return the name of the policy that a run used."""
    return str(result.settings.get("policy", "unnamed"))


def labels(results: Sequence[Result]) -> tuple[str, ...]:
    """Name each run by its policy, and by what sets it apart where one policy ran more than once."""
    if not results:
        raise InputError("nothing to report: no results were given")
    names = [policy_of(result) for result in results]
    for setting in DISTINGUISHING:
        values = [str(result.settings.get(setting, "")) for result in results]
        if len(set(names)) == len(names):
            break
        # The names whose runs differ in this setting.
        shared = {name for name in names if len({v for n, v in zip(names, values, strict=True) if n == name}) > 1}
        names = [
            f"{name} · {value}" if name in shared and value else name
            for name, value in zip(names, values, strict=True)
        ]
    return tuple(
        f"{name} #{names[: place + 1].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    )
