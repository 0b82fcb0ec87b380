"""Forms of a policy with one of its terms switched off."""

from inspect import signature

from benchmarks.regret.world import Contender
from cranny.policies import policy_class


def switches(policy: str) -> dict[str, bool]:
    """Return the options of a policy that are on or off, with their defaults."""
    return {
        name: each.default
        for name, each in signature(policy_class(policy)).parameters.items()
        if isinstance(each.default, bool)
    }


def switched_off(whole: Contender) -> dict[str, Contender]:
    """Return a policy without each of the terms that it has switches for, by the name of the term."""
    return {name: whole._replace(options=((name, False),)) for name, on in switches(whole.policy).items() if on}
