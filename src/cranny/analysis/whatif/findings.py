"""What an operator should take away, in a few plain sentences."""

from collections.abc import Iterator

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.headroom import HOLD_S
from cranny.analysis.whatif.machine_search import Addition, Removal
from cranny.analysis.whatif.waits import Waits
from cranny.model.validate import counted, percent
from cranny.report.scales import duration_text

EQUAL_S = 1.0  # waits closer than this are the same to a person
SOONER = 0.05  # a wait that is shorter by less than this is called the same


def findings(answer: WhatIfAnswer) -> list[str]:
    """Return the sentences, in the order in which people ask."""
    found = [*_waiting(answer), *_machines(answer), *_largest(answer)]
    for search in answer.searches:
        found += [*_removal(answer, search.policy, search.removal), _addition(search.policy, search.addition)]
    return found


def _waiting(answer: WhatIfAnswer) -> Iterator[str]:
    """Compare the shortest mean wait with the log's, or with the longest where the log has none."""
    replayed = [(case, case.waits) for case in answer.compared if case.waits is not None]
    best, short = min(replayed, key=lambda each: each[1].wait.mean_s)
    was = answer.cases[0].waits
    if was is not None:
        yield (
            f"In the log jobs waited {_wait(was)}; with {best.name} they would have waited {_wait(short)}"
            f"{_less(short.wait.mean_s, was.wait.mean_s)}."
        )
        return
    worst, long = max(replayed, key=lambda each: each[1].wait.mean_s)
    rival = "" if worst is best else f", with {worst.name} {_wait(long)}"
    really = "how long they really waited is not in the log"
    yield f"With {best.name} jobs would have waited {_wait(short)}{rival}; {really}."


def _wait(waits: Waits) -> str:
    return f"{duration_text(waits.wait.mean_s)} on average (p99 {duration_text(waits.wait.p99_s)})"


def _less(now_s: float, then_s: float) -> str:
    if abs(now_s - then_s) < EQUAL_S or not then_s:
        return ""
    if now_s >= 2 * then_s:
        return f", {now_s / then_s:,.1f} times as long"
    return f", {percent(abs(1 - now_s / then_s))} {'less' if now_s < then_s else 'more'}"


def _machines(answer: WhatIfAnswer) -> Iterator[str]:
    """Name the policy that leaves most to switch off, and the one that leaves least."""
    known = sorted(
        ((answer.money_a_day(case.machines), case, case.machines) for case in answer.compared if case.machines),
        key=lambda each: -each[0],
    )
    money, case, machines = known[0]
    of_all = f"{_mean(machines.off)} of {len(answer.cluster.machines):,} machines"
    yield (
        f"With {case.name} {of_all} could have been off on average, "
        f"${money:,.0f} a day at ${answer.price_per_gpu_hour:,.2f} per GPU-hour (idle stretches of "
        f"{duration_text(HOLD_S)} or longer)."
    )
    least, last, fewer = known[-1]
    if round(money) != round(least):
        yield f"With {last.name} it would have been {_mean(fewer.off)} machines, ${money - least:,.0f} a day less."


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
        if (was := answer.cases[0].headroom) is not None:
            anywhere += f" (in the log {percent(was.free_gpus.share_from(size))})"
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
        saved = removal.machines * gpus * 24 * answer.price_per_gpu_hour  # a day, for machines of mean size
        yield (
            f"With {policy} {counted(removal.machines, 'machine')} could be removed: the mean wait would be "
            f"{duration_text(then)} instead of {duration_text(now)} (${saved:,.0f} a day)."
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


def _mean(machines: float) -> str:
    return f"{machines:,.0f}" if machines >= 10 else f"{machines:.1f}"
