"""What an operator should take away, in a few plain sentences."""

from collections.abc import Iterator, Sequence

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.headroom import HOLD_S
from cranny.analysis.whatif.machine_search import Addition, Removal
from cranny.analysis.whatif.waits import Waits
from cranny.model.validate import counted, percent
from cranny.report.scales import duration_text

EQUAL_S = 1.0  # waits closer than this are the same to a person
EQUAL = 0.01  # and so are those that differ by no more than this share
SOONER = 0.05  # a wait that is shorter by less than this is called the same


def findings(answer: WhatIfAnswer) -> list[str]:
    """Return the sentences, in the order in which people ask."""
    found = [*_waiting(answer), *_machines(answer), *_largest(answer)]
    for search in answer.searches:
        found += [*_removal(answer, search.policy, search.removal), _addition(search.policy, search.addition)]
    return found


def _waiting(answer: WhatIfAnswer) -> Iterator[str]:
    """Compare the shortest mean wait with the log's, or with the longest where the log has none.

    Policies with equal waits are named together, and a wait that others have too is no merit of a policy.
    """
    replayed = [(case, case.waits) for case in answer.compared if case.waits is not None]
    best, short = min(replayed, key=lambda each: each[1].wait.mean_s)
    worst, long = max(replayed, key=lambda each: each[1].wait.mean_s)
    alike = [case.name for case, each in replayed if _same(each.wait.mean_s, short.wait.mean_s)]
    everywhere = len(alike) == len(replayed) and len(replayed) > 1
    names = "every policy" if everywhere else _listed(alike)
    was = answer.was.waits
    if was is not None:
        own = answer.scheduler.waits if answer.scheduler is not None else None
        yield (
            f"In the log jobs waited {_wait(was)}; with {names} they would have waited {_wait(short)}"
            f"{_less(short.wait.mean_s, was.wait.mean_s)}."
        )
        if own is not None:
            yield (
                f"Replayed like the log's own scheduler they wait {_wait(own)}: what a policy gains is the "
                f"difference to that{_less(short.wait.mean_s, own.wait.mean_s)}."
            )
        return
    rival = "" if everywhere or worst is best else f", with {worst.name} {_wait(long)}"
    really = "how long they really waited is not in the log"
    yield f"With {names} jobs would have waited {_wait(short)}{rival}; {really}."


def _same(one_s: float, other_s: float) -> bool:
    """Say whether two waits are the same to a person."""
    return abs(one_s - other_s) <= max(EQUAL_S, EQUAL * max(one_s, other_s))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _wait(waits: Waits) -> str:
    return f"{duration_text(waits.wait.mean_s)} on average (p99 {duration_text(waits.wait.p99_s)})"


def _less(now_s: float, then_s: float) -> str:
    if _same(now_s, then_s) or not then_s:
        return ", which is the same" if _same(now_s, then_s) else ""
    if now_s >= 2 * then_s:
        return f", {now_s / then_s:,.1f} times as long"
    return f", {percent(abs(1 - now_s / then_s))} {'less' if now_s < then_s else 'more'}"


def _machines(answer: WhatIfAnswer) -> Iterator[str]:
    """Name the policy that saves most against what was idle anyway; without that, what could have been off."""
    total, hold = f"{len(answer.cluster.machines):,} machines", duration_text(HOLD_S)
    known = sorted(
        ((case, case.machines) for case in answer.compared if case.machines),
        key=lambda each: -each[1].off_gpu_hours,
    )
    best, most = known[0]
    was = answer.was.machines
    if was is None:
        least, fewest = known[-1]
        rival = f", with {least.name} {_mean(fewest.off)}" if _mean(fewest.off) != _mean(most.off) else ""
        yield (
            f"With {best.name} {_mean(most.off)} of {total} could have been off on average{rival} (idle stretches "
            f"of {hold} or longer). That is no saving: how many of them were idle anyway is not in the log."
        )
        return
    saved = sorted(
        ((saving, case, case.machines) for case, _ in known if (saving := answer.saving(case)) and case.machines),
        key=lambda each: -each[0].money,
    )
    yield f"As it was, {_mean(was.off)} of {total} were idle for {hold} or longer on average."
    if not saved:
        yield "No policy did the same work in that time, so that there is nothing to compare it with."
        return
    (first, case, machines), (last, other, fewer) = saved[0], saved[-1]
    price = f"at ${answer.price_per_gpu_hour:,.2f} per GPU-hour"
    if first.money <= 0:
        yield f"No policy leaves more of them off; with {case.name} it would have been {_mean(machines.off)}."
        return
    yield (
        f"With {case.name} it would have been {_mean(machines.off)}, which saves {money(first.money_a_day)} a day "
        f"{price}."
    )
    if money(first.money_a_day) != money(last.money_a_day):
        change = f"{'saves' if last.money >= 0 else 'loses'} {money(abs(last.money_a_day))} a day"
        yield f"With {other.name} it would have been {_mean(fewer.off)}, which {change}."


def _largest(answer: WhatIfAnswer) -> Iterator[str]:
    """Say how often the largest of the usual jobs could have started without sharing a machine."""
    if not answer.sizes_to_start:
        return
    size = answer.sizes_to_start[-1]
    shares = sorted(
        (
            (case.headroom.idle_gpus.share_from(size), case)
            for case in answer.compared
            if case.headroom is not None and case.headroom.idle_gpus is not None
        ),
        key=lambda each: -each[0],
    )
    (most, best), (least, worst) = shares[0], shares[-1]
    rival = f", with {worst.name} {percent(least)}" if percent(most) != percent(least) else ""
    anywhere = ""
    if best.headroom is not None:
        anywhere = f"; so many GPUs were free somewhere {percent(best.headroom.free_gpus.share_from(size))} of it"
        if (was := answer.was.headroom) is not None:
            anywhere += f" (in the log {percent(was.free_gpus.share_from(size))})"
            if was.idle_gpus is not None:
                rival += f", as it was {percent(was.idle_gpus.share_from(size))}"
    yield (
        f"A job of {size} GPUs could have started on idle machines alone {percent(most)} of the time with "
        f"{best.name}{rival}{anywhere}."
    )


def _removal(answer: WhatIfAnswer, policy: str, removal: Removal) -> Iterator[str]:
    now, then = removal.tried[0], removal.tried[removal.machines]
    if not removal.machines:
        limit = duration_text(removal.limit_s)
        yield f"With {policy} no machine could be removed without jobs waiting longer than {limit} on average."
    else:
        gpus = answer.cluster.gpus / len(answer.cluster.machines)
        cost = removal.machines * gpus * 24 * answer.price_per_gpu_hour  # a day, for machines of mean size
        yield (
            f"With {policy} {counted(removal.machines, 'machine')} could be removed: the mean wait would be "
            f"{duration_text(then)} instead of {duration_text(now)} (they cost ${cost:,.0f} a day)."
        )
    if removal.again:
        others = ", ".join(f"{count:,}" for count in removal.again)
        yield (
            f"That answer is not sharp: removing {others} would do too although a smaller number would not. "
            "Of the numbers tried, the one given is the largest with no failure below it."
        )
    else:
        yield "The numbers next to it were tried too and agree; those further away were not tried."


def _addition(policy: str, addition: Addition) -> str:
    """Name the sizes of job that would start clearly sooner."""
    gains = {
        size: before_s - addition.after_s.get(size, before_s)
        for size, before_s in addition.before_s.items()
        if before_s - addition.after_s.get(size, before_s) > max(EQUAL_S, SOONER * before_s)
    }
    more = f"With {policy} and {counted(addition.machines, 'more machine')}"
    if not gains:
        return f"{more} no size of job would start clearly sooner."
    sooner = ", ".join(
        f"{size} GPU{'s' * (size != '1')} {duration_text(gain_s)}"
        for size, gain_s in sorted(gains.items(), key=lambda each: -each[1])
    )
    return f"{more} jobs would start sooner, on average: {sooner}."


def money(dollars: float) -> str:
    """Write an amount of money to the dollar."""
    return f"{'-' if round(dollars) < 0 else ''}${abs(dollars):,.0f}"


def _mean(machines: float) -> str:
    return f"{machines:,.0f}" if machines >= 10 else f"{machines:.1f}"
