"""Forms of a policy: with one of its terms switched off, or with another setting."""

from inspect import signature

from benchmarks.regret.world import Contender
from cranny.policies import options_of, policy_class


def switches(policy: str) -> dict[str, bool]:
    """Return the options of a policy that are on or off, its own and those of its base classes, with defaults."""
    known = options_of(policy)
    return {
        name: each.default
        for kind in reversed(policy_class(policy).__mro__[:-1])
        for name, each in signature(kind).parameters.items()
        if isinstance(each.default, bool) and name in known
    }


# Terms whose option is a number, which is 0 without them.
NUMBERED = {"moves": "move_every_s"}


def switched_off(whole: Contender) -> dict[str, Contender]:
    """Return a policy without each of the terms that can be switched off, by the name of the term."""
    off: dict[str, tuple[str, float]] = {name: (name, False) for name, on in switches(whole.policy).items() if on}
    off |= {term: (name, 0.0) for term, name in NUMBERED.items() if name in options_of(whole.policy)}
    return {term: whole._replace(options=(option,)) for term, option in off.items()}


# Settings that trade one metric for another; each world may have its own best, which is known only afterwards.
SETTINGS: dict[str, tuple[float, ...]] = {"patience": (0.3, 1.0, 3.0, 30.0, 100.0), "margin": (3.0,)}


def other_settings(whole: Contender) -> list[Contender]:
    """Return a policy with other settings, those that it has."""
    known = options_of(whole.policy)
    return [
        whole._replace(options=((name, value),))
        for name, values in SETTINGS.items()
        if name in known
        for value in values
    ]
