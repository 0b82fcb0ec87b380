"""What machines cost, what policies save of that, and how sure it is which policy is best, as tables."""

from collections.abc import Sequence

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.calibration import REPLAYED
from cranny.analysis.whatif.details import AnswerDetails
from cranny.analysis.whatif.resampling import LEAST_WEEKS, resampled_from
from cranny.analysis.whatif.savings import CaseSaving, Savings
from cranny.analysis.whatif.wording import change_with_interval, dollars, dollars_with_interval
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable

BEST = "best"


def money_tables(answer: WhatIfAnswer) -> list[TextTable]:
    """Return what machines cost, and what policies save where that is known."""
    details = answer.details
    made = [_costs(details)]
    if details.savings.of_case:
        made.append(_savings(details.savings, [case.name for case in answer.policies]))
    return made


def _costs(details: AnswerDetails) -> TextTable:
    rows = []
    for name, cost in details.costs.items():
        energy = cost.busy_energy.sum() + cost.idle_energy.sum()
        a_day = (each / details.days for each in (cost.on.sum(), energy, -cost.saved.sum(), cost.total.sum()))
        rows.append([name, *(dollars(float(each)) for each in a_day), f"{cost.boots.sum():,.0f}"])
    none = f" No saving is given: {details.savings.why_none}." if details.savings.why_none else ""
    return TextTable(
        "What machines cost a day",
        f"Money {details.prices.about}. {details.prices.off_rule}{none}",
        ("", "machines on", "energy", "off", "total", "boots"),
        rows,
    )


def _savings(savings: Savings, policies: Sequence[str]) -> TextTable:
    """Show what each policy saves; where the log's scheduler was replayed, in two steps."""
    divided = savings.of_replay is not None
    rows = [[name, *_saved(savings, savings.of_case.get(name), divided=divided)] for name in policies]
    intervals = {saving.shown.why_no_interval for saving in savings.of_case.values()}
    sure = "; ".join(sorted(filter(None, intervals))) or "in brackets 95 % intervals from resampled weeks"
    about = (
        f"A policy costs less than the log in two steps: from the log to {REPLAYED!r}, which is how far a replay "
        "is from the log, and from there to the policy, which is what the policy saves, also in a year."
        if divided
        else "Against what the log itself cost with the same rule: the whole difference, of which a part may come "
        f"from the replay and not from the policy, as the log's scheduler was not replayed: {savings.why_whole}."
    )
    late = " A policy that puts work off saves nothing." if any(name in savings.late for name in policies) else ""
    steps = ("log to replay, a day", "replay to policy, a day", "together, a day")
    head = ("", *(steps if divided else ("saved a day",)), "saved a year")
    return TextTable("What policies save", f"{about} A year has 365 days like these; {sure}.{late}", head, rows)


def _saved(savings: Savings, saving: CaseSaving | None, *, divided: bool) -> list[str]:
    if saving is None:
        return [MISSING] * (4 if divided else 2)
    days = (savings.of_replay, saving.credited, saving.whole) if divided else (saving.whole,)
    shown = [dollars_with_interval(each.a_day, each.interval) for each in days if each is not None]
    return [*shown, dollars_with_interval(saving.shown.a_year, saving.shown.year_interval)]


def choice_table(answer: WhatIfAnswer) -> TextTable:
    """Show how each policy differs from the log's scheduler and from the best policy, and how sure that is."""
    details, waits = answer.details, answer.details.waits
    names = [case.name for case in answer.compared]
    best = waits.shortest(names)
    against = [] if details.against in names else [details.against]
    paid = {name: details.costs[name].total.sum() for name in names if name not in details.savings.late}
    cheapest = min(paid, key=lambda name: float(paid[name]), default="")
    rows = []
    for name in names:
        row = [name, *(_longer(answer, name, other) for other in against)]
        if len(names) > 1:
            row.append(BEST if name == best else _longer(answer, name, best))
            row.append(_dearer(details, name, cheapest) if name in paid else MISSING)
        rows.append(row)
    head = ["", *(f"wait against {other!r}" for other in against)]
    if len(names) > 1:
        head += [f"wait against {best}", f"cost a day against {cheapest}"]
    return TextTable(
        "Which policy, and how sure",
        f"Differences of means over the same jobs; {_sure(details)}",
        head,
        rows if len(head) > 1 else [],
    )


def _sure(details: AnswerDetails) -> str:
    if not details.waits.resampled:
        return f"{resampled_from(details.window)}."
    clear = "A difference whose interval has both signs is not clear."
    return (
        f"in brackets {resampled_from(details.window)}; money has intervals from {LEAST_WEEKS} weeks on. {clear}"
    )


def _longer(answer: WhatIfAnswer, name: str, other: str) -> str:
    found = answer.details.waits.difference(name, other)
    return change_with_interval(found.mean_s, found.interval)


def _dearer(details: AnswerDetails, name: str, cheapest: str) -> str:
    if name == cheapest:
        return BEST
    found = details.more_a_day(name, cheapest)
    return f"+{dollars_with_interval(found.a_day, found.interval)}"
