"""The policy that a caller chose, by name or as an object: seeded, and with the order of its queue."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from cranny.core.protocol import (
    Placer,
    Policy,
    Reorderable,
    Slowdown,
    default_order,
    default_period_s,
    least_period_s,
)
from cranny.core.queue import QueuePolicy
from cranny.model.errors import InputError
from cranny.model.job import whole
from cranny.model.validate import not_negative
from cranny.policies import TABLE, options_of, policy_class
from cranny.policies import policy as make_policy

MAX_SEED = 2**63 - 1


def resolve_policy(
    policy: str | Placer | Policy,
    order: str | None,
    options: Mapping[str, Any] | None,
    seed: int,
    slowdown: Slowdown,
) -> tuple[str, Policy, str]:
    """Return the name of a policy, the policy itself, and the order of its queue."""
    if isinstance(policy, str):
        placer = seeded_policy(policy, seed, options)
        order = order or TABLE[policy].order
        return policy, _in_order(placer, order, slowdown), order
    if options:
        raise InputError("options are for a policy that is given by name; this one is made already")
    core = policy.placer if isinstance(policy, QueuePolicy) else policy
    if type(core).__module__.startswith("cranny.policies."):
        policy = deepcopy(policy)  # so that one object serves several runs alike; policies of others see to that
    if not isinstance(policy, QueuePolicy):
        order = order or default_order(policy)
        return type(policy).__name__, _in_order(policy, order, slowdown), order
    if order not in (None, policy.order):
        raise InputError(f"the policy has its own order, {policy.order!r}; order={order!r} cannot be kept")
    return type(policy.placer).__name__, policy, policy.order


def seeded_policy(name: str, seed: int, options: Mapping[str, Any] | None = None) -> Placer:
    """Make a policy by name; one that draws gets a generator of the run's seed."""
    whole(seed, "seed", least=0, most=MAX_SEED)
    given = dict(options or {})
    if "rng" in given:
        raise InputError(f"policy {name!r}: rng is set by the run's seed")
    if "rng" in options_of(name):
        given["rng"] = np.random.default_rng(seed)
    return make_policy(name, **given)


def decision_period_s(policy: str | Placer | Policy, asked_s: float = 0.0) -> float:
    """Return how often a policy decides: as asked for, or as in its paper; 0 for at every event."""
    not_negative(asked_s, "period_s")
    name, kind = (policy, policy_class(policy)) if isinstance(policy, str) else (type(policy).__name__, policy)
    if 0 < asked_s < least_period_s(kind):
        raise InputError(f"{name}: period_s must be at least {least_period_s(kind):g}, not {asked_s!r}")
    return asked_s or default_period_s(kind)


def _in_order(chosen: Placer | Policy, order: str, slowdown: Slowdown) -> Policy:
    """Turn a placer and a queue order into a policy; leave a policy as it is, unless it can have another order."""
    if isinstance(chosen, Reorderable):  # it works on top of another, whose queue it is
        return chosen.in_order(order, slowdown)
    if isinstance(chosen, Policy) and (not isinstance(chosen, Placer) or order == default_order(chosen)):
        return chosen
    return QueuePolicy(chosen, order, slowdown)
