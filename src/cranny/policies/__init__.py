"""The policies, by name. A policy is one file; adding one means adding an entry to `policies.toml`.

No policy imports another: what several need is in `_shared`. None reads a clock, draws without a generator that it
is given, or changes the state: it gets a snapshot and returns a plan.
"""

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cranny.model.errors import CrannyError, InputError, unknown

if TYPE_CHECKING:
    from cranny.core.protocol import Placer  # only its name: listing policies must not load the core


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """Where a policy is defined and what it does."""

    path: str  # module:class, imported when it is used
    about: str
    paper: str
    order: str = "fifo"  # the queue order that its paper uses, which objects of the class have too
    host: str = ""  # the policy that it improves


def _table() -> dict[str, PolicyEntry]:
    """Read the table of policies."""
    text = Path(__file__).with_name("policies.toml").read_text(encoding="utf-8")
    return {name: PolicyEntry(**entry) for name, entry in tomllib.loads(text).items()}


TABLE = _table()


def listing() -> dict[str, str]:
    """Return the policies by name, each with a description and the paper it comes from."""
    return {name: f"{entry.about} ({entry.paper})" for name, entry in TABLE.items()}


class _Listing(ModuleType):
    """The package, made callable: `cranny.policies()` lists the policies.

    Importing any policy binds this package as the attribute `policies` of `cranny`, whatever `cranny` defines
    itself. So that `cranny.policies()` and `import cranny.policies` both work in any order, the package can be
    called.
    """

    def __call__(self) -> dict[str, str]:
        return listing()


sys.modules[__name__].__class__ = _Listing


def policy_class(name: str) -> "type[Placer]":
    """Return the class of a policy by name."""
    if name not in TABLE:
        raise unknown("policy", name, TABLE)
    module, _, named = TABLE[name].path.partition(":")
    try:
        found: type[Placer] = getattr(import_module(module), named)
    except ModuleNotFoundError as error:
        raise CrannyError(f"policy {name!r} needs {error.name!r}: install cranny with its extra 'exact'") from None
    return found


def options_of(name: str) -> set[str]:
    """Return the options of a policy, with those of its host and of its base class."""
    found = _parameters(policy_class(name))
    if host := TABLE[name].host:
        found |= _parameters(policy_class(host))
    return found - {"host"}


def _parameters(chosen: "type[Placer]") -> set[str]:
    """Return the parameters of a class; one that takes any passes those that it does not name to its base."""
    found: set[str] = set()
    for kind in chosen.__mro__:
        parameters = signature(kind).parameters.values()
        found.update(each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD)
        if all(each.kind is not Parameter.VAR_KEYWORD for each in parameters):
            break
    return found


def policy(name: str, **options: Any) -> "Placer":
    """Make a policy by name; options go to its constructor, and those that it does not have to its host's."""
    made = policy_class(name)
    known = options_of(name)
    for option in options:
        if option not in known:
            settable = known - {"rng"}  # which a run sets by its seed
            what = unknown("option", option, settable) if settable else "it has no options"
            raise InputError(f"policy {name!r}: {what}")
    host = TABLE[name].host
    if not host:
        return made(**options)
    own = _parameters(made)
    under = policy_class(host)(**{option: value for option, value in options.items() if option not in own})
    above: Callable[..., Placer] = made
    return above(under, **{option: value for option, value in options.items() if option in own})
