"""What an operator should take away, in a few plain sentences."""

from collections.abc import Iterator

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.calibration import REPLAYED
from cranny.analysis.whatif.machine_search import Addition, Removal
from cranny.analysis.whatif.resampling import resampled_from, too_short
from cranny.analysis.whatif.resized_cluster import resized
from cranny.analysis.whatif.savings import CaseSaving
from cranny.analysis.whatif.waits import Waits
from cranny.analysis.whatif.wording import change_with_interval, dollar_range, dollars, listed
from cranny.model.validate import counted, percent
from cranny.report.scales import duration_text

EQUAL_S = 1.0  # waits closer than this are the same to a person
EQUAL = 0.01  # and so are those that differ by no more than this share
SOONER = 0.05  # a wait that is shorter by less than this is called the same


def findings(answer: WhatIfAnswer) -> list[str]:
    """Return the sentences, in the order in which people ask."""
    found = [*_waiting(answer), *_how_sure(answer), *_machines(answer), *_largest(answer), *_large_jobs(answer)]
    for search in answer.searches:
        found += [*_removal(answer, search.policy, search.removal), _addition(search.policy, search.addition)]
    return found


def _waiting(answer: WhatIfAnswer) -> Iterator[str]:
    """Compare the shortest mean wait with the log's, or with the longest where the log has none.

    Policies with equal waits are named together, and a wait that others have too is no merit of a policy. Where
    the log's scheduler was replayed, only the difference to that is said to be a policy's.
    """
    replayed = [(case, case.waits) for case in answer.compared if case.waits is not None]
    best, short = min(replayed, key=lambda each: each[1].wait.mean_s)
    worst, long = max(replayed, key=lambda each: each[1].wait.mean_s)
    alike = [case.name for case, each in replayed if _same(each.wait.mean_s, short.wait.mean_s)]
    everywhere = len(alike) == len(replayed) and len(replayed) > 1
    names = "every policy" if everywhere else listed(alike)
    was, credited_s = answer.was.waits, answer.credited_wait_s(best)
    if was is None:
        rival = "" if everywhere or worst is best else f", with {worst.name} {_wait(long)}"
        really = "how long they really waited is not in the log"
        yield f"With {names} jobs would have waited {_wait(short)}{rival}; {really}."
        return
    logged = f"In the log jobs waited {_wait(was)}; with {names} they would have waited"
    own = answer.scheduler.waits if answer.scheduler is not None else None
    if credited_s is not None and own is not None:
        then = f"{duration_text(credited_s)} on average"
        yield f"{logged} {then}{_less(credited_s, was.wait.mean_s)}."
        yield (
            f"Replayed like the log's own scheduler they wait {_wait(own)}, with {names} {_wait(short)}: a policy "
            "is credited only with that difference."
        )
        if answer.calibration is not None:
            yield answer.calibration.verdict
        return
    yield f"{logged} {_wait(short)}{_less(short.wait.mean_s, was.wait.mean_s)}."
    yield (
        "That is the whole difference to the log, of which a part may come from the replay: the log's scheduler "
        f"was not replayed, since {answer.why_not_calibrated}."
    )


def _how_sure(answer: WhatIfAnswer) -> Iterator[str]:
    """Say which policy waits shortest, and how sure that is, from differences over the same weeks."""
    details, waits = answer.details, answer.details.waits
    names = [case.name for case in answer.compared]
    best = waits.shortest(names)
    if not waits.resampled:
        yield f"How sure differences of waits are is not known: {too_short(details.window)}."
        return
    if details.against not in names:
        found = waits.difference(best, details.against)
        change = f"{change_with_interval(found.mean_s, found.interval)}; {resampled_from(details.window)}"
        clear = "is clear" if found.is_clear else "is not clear, since it may have either sign"
        equal = abs(found.mean_s) < EQUAL_S
        yield (
            f"The mean wait with {best} is that of {details.against!r}."
            if equal
            else f"The change of the mean wait from {details.against!r} to {best} {clear} ({change})."
        )
    rivals = {name: waits.difference(name, best) for name in names if name != best}
    equal_to = [name for name, found in rivals.items() if found.mean_s < EQUAL_S]
    longer = [name for name, found in rivals.items() if found.is_clear and name not in equal_to]
    doubtful = [name for name in rivals if name not in (*equal_to, *longer)]
    words = {"equal to that": equal_to, "clearly shorter than": longer, "not clearly shorter than": doubtful}
    parts = [f"{how} with {listed(those)}" for how, those in words.items() if those]
    if parts:
        yield f"The mean wait with {best} is {', and '.join(parts)}."


def _same(one_s: float, other_s: float) -> bool:
    """Say whether two waits are the same to a person."""
    return abs(one_s - other_s) <= max(EQUAL_S, EQUAL * max(one_s, other_s))


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
    details = answer.details
    off = {case.name: details.machines_off(case.name) for case in answer.compared}
    total, idle = f"{len(answer.cluster.machines):,} machines", f"({details.prices.idle_words})"
    if details.savings.why_none:
        best, least = max(off, key=lambda name: off[name]), min(off, key=lambda name: off[name])
        rival = f", with {least} {_mean(off[least])}" if _mean(off[least]) != _mean(off[best]) else ""
        yield (
            f"With {best} {_mean(off[best])} of {total} could have been off on average{rival} {idle}. That is no "
            "saving: how many of them were idle anyway is not in the log."
        )
        return
    yield f"As it was, {_mean(details.machines_off(answer.was.name))} of {total} could have been off {idle}."
    saved = answer.savings()
    if not saved:
        yield "No policy did the same work in that time, so that there is nothing to compare it with."
        return
    (case, saving), (other, last) = saved[0], saved[-1]
    yield f"With {case.name} it would have been {_mean(off[case.name])}{_saved(answer, saving)}"
    if dollars(saving.shown.a_day) != dollars(last.shown.a_day):
        change = f"{'saves' if last.shown.a_day >= 0 else 'loses'} {dollars(abs(last.shown.a_day))} a day"
        yield f"With {other.name} it would have been {_mean(off[other.name])}, which {change}."
    if details.savings.why_whole not in ("", answer.why_not_calibrated):
        yield f"Savings are the whole difference to the log: {details.savings.why_whole}."


def _saved(answer: WhatIfAnswer, saving: CaseSaving) -> str:
    """Say what the best policy saves, and what part of the difference to the log is not its own."""
    shown, of_replay, prices = saving.shown, answer.details.savings.of_replay, answer.details.prices
    than = f"than {REPLAYED!r}" if of_replay is not None else "than the log"
    if round(shown.a_day) <= 0:
        said = f"; no policy costs less {than}."
    else:
        sure = f", 95 % interval {dollar_range(shown.interval)}" if shown.interval is not None else ""
        doubt = ", so that it is not clear" if shown.interval is not None and shown.interval.has_zero else ""
        against = f" against {REPLAYED!r}" if of_replay is not None else ""
        said = f", which saves {dollars(shown.a_day)} a day{against} {prices.about}{sure}{doubt}."
    if of_replay is None:
        return said
    return (
        f"{said} The whole difference to the log is {dollars(saving.whole.a_day)} a day: "
        f"{dollars(of_replay.a_day)} of it is between the log and that replay, and no policy's doing."
    )


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


def _large_jobs(answer: WhatIfAnswer) -> Iterator[str]:
    """Say how long the largest of the jobs asked about would wait."""
    known = [(case.large_jobs[-1], case.name) for case in answer.compared if case.large_jobs]
    if not known:
        return
    (best, name), (worst, other) = (pick(known, key=lambda each: each[0].mean_s) for pick in (min, max))
    rival = "" if _same(best.mean_s, worst.mean_s) else f", with {other} {duration_text(worst.mean_s)}"
    was = answer.was.large_jobs
    before = f", as it was {duration_text(was[-1].mean_s)}" if was else ""
    kind = f" {best.gpu_type}" if best.gpu_type else ""
    yield (
        f"A job of {best.gpus:,}{kind} GPUs that gets a reservation would wait {duration_text(best.mean_s)} on "
        f"average (p90 {duration_text(best.p90_s)}) with {name}{rival}{before}."
    )


def _removal(answer: WhatIfAnswer, policy: str, removal: Removal) -> Iterator[str]:
    now, then = removal.tried[0], removal.tried[removal.machines]
    if not removal.machines:
        limit = duration_text(removal.limit_s)
        yield f"With {policy} no machine could be removed without jobs waiting longer than {limit} on average."
    else:
        smaller = resized(answer.cluster, -removal.machines, last=answer.removed_last)
        left = {machine.name for machine in smaller.machines}
        gone = [machine for machine in answer.cluster.machines if machine.name not in left]
        yield (
            f"With {policy} {counted(removal.machines, 'machine')} could be removed: the mean wait would be "
            f"{duration_text(then)} instead of {duration_text(now)} (they cost "
            f"{dollars(answer.details.idle_cost_a_day(gone))} a day)."
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
