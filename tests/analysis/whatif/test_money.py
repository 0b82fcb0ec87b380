"""Money on small clusters, with numbers that were worked out by hand, and against a walk minute by minute."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.whatif.test_headroom import BUSY, TWO, WINDOW
from tests.examples import examples
from tests.reference.machine_cost import cost_by_minutes

from cranny.analysis.whatif.headroom import idle_stretches, switched_off
from cranny.analysis.whatif.money import MachineCost, idle_cost_a_day, machine_cost, saving
from cranny.analysis.whatif.prices import HOURS, MachinePrices, Prices, price_clock
from cranny.analysis.whatif.prices_file import read_prices
from cranny.analysis.whatif.resampling import WEEK_S, block_edges_s
from cranny.model.cluster import Machine
from cranny.model.errors import InputError

RUNS = {"start_s": pl.Float64, "end_s": pl.Float64, "machine": pl.Int32, "gpus": pl.UInt64}


def flat(rate: float) -> tuple[float, ...]:
    return (rate,) * HOURS


def cost(
    runs: pl.DataFrame,
    machines: tuple[Machine, ...],
    prices: Prices,
    window: tuple[float, float] = WINDOW,
    zero_epoch_s: float | None = None,
) -> MachineCost:
    return machine_cost(runs, machines, prices, price_clock(window, zero_epoch_s, prices.zone), window)


# BUSY: machine a (4 GPUs) is idle from 3600 to the end at 7200; machine b (8) from 0 to 600 and 1800 to 2400.
def test_one_price_gives_what_idle_hours_cost() -> None:
    found = cost(BUSY, TWO, Prices.simple(2.0))
    assert found.on.tolist() == pytest.approx([2.0 * 12 * 2])
    assert found.saved.tolist() == pytest.approx([2.0 * 4 * 1])  # ten minutes of b are too short
    assert found.boots.tolist() == [0]  # a is idle to the end
    assert found.off_hours.tolist() == pytest.approx([1.0])
    hours = switched_off(idle_stretches(BUSY, 2, WINDOW), TWO, WINDOW)
    assert found.saved.sum() == pytest.approx(2.0 * hours.off_gpu_hours)
    # 2 GPUs for 1800 s, 1 for 2400, 8 for 1200, 1 from 2400 to 7200
    assert found.held_gpu_hours.sum() == pytest.approx((2 * 1800 + 2400 + 8 * 1200 + 4800) / 3600)


def test_a_boot_takes_time_and_money_and_must_pay() -> None:
    # b costs 8 x 3 = 24 an hour: ten minutes are 4; five of them are lost to the boot, 2 are left.
    prices = Prices(MachinePrices(flat(3.0), boot_s=300.0, boot_cost=1.5))
    found = cost(BUSY, TWO, prices)
    assert found.boots.sum() == 2
    assert found.saved.sum() == pytest.approx(3.0 * 4 * 1 + 2 * (2.0 - 1.5))
    assert found.off_hours.sum() == pytest.approx(1 + 2 * 300 / 3600)
    dear = cost(BUSY, TWO, Prices(MachinePrices(flat(3.0), boot_s=300.0, boot_cost=2.5)))
    assert (dear.boots.sum(), dear.saved.sum()) == (0, pytest.approx(12.0))
    # So it pays from five minutes and 1.5 / (24 / 3600) s on.
    assert prices.break_even_s(TWO[1]) == pytest.approx((525.0, 525.0))
    assert prices.break_even_s(TWO[0]) == pytest.approx((750.0, 750.0))


def test_energy_is_paid_by_watts_of_machines_and_gpus() -> None:
    # A kilowatt-hour costs 0.36, so a watt-second costs 1e-7.
    held = 2 * 1800 + 2400 + 8 * 1200 + 4800
    prices = Prices(
        MachinePrices(idle_watts=50, busy_watts=400, machine_watts=300, off_watts=10), per_kwh=flat(0.36)
    )
    found = cost(BUSY, TWO, prices)
    assert found.on.sum() == 0
    assert found.busy_energy.sum() == pytest.approx(held * 400 * 1e-7)
    assert found.idle_energy.sum() == pytest.approx((2 * 7200 * 300 + (12 * 7200 - held) * 50) * 1e-7)
    assert found.busy_kwh.sum() == pytest.approx(held * 400 / 3.6e6)
    assert found.idle_kwh.sum() == pytest.approx(found.idle_energy.sum() / 0.36)
    off = 3600 * (300 + 4 * 50 - 10) + 1200 * (300 + 8 * 50 - 10)
    assert found.saved.sum() == pytest.approx(off * 1e-7)
    assert found.total.sum() == pytest.approx(found.busy_energy.sum() + found.idle_energy.sum() - off * 1e-7)


def test_types_have_prices_of_their_own_whatever_their_case() -> None:
    machines = Machine("a", 4, "A100"), Machine("b", 8, "V100")
    prices = Prices(MachinePrices(flat(1.0)), {"a100": MachinePrices(flat(3.0)), "h100": MachinePrices(flat(9.0))})
    assert cost(BUSY, machines, prices).on.sum() == pytest.approx(4 * 3 * 2 + 8 * 1 * 2)
    assert prices.unused_types(machines) == ["h100"]


def test_types_have_prices_by_alias_and_one_that_can_be_two_is_an_error() -> None:
    machines = Machine("a", 4, "NVIDIA-A100-SXM4-80GB"), Machine("b", 8, "Tesla V100"), Machine("c", 1)
    prices = Prices(MachinePrices(flat(1.0)), {"a100": MachinePrices(flat(3.0)), "v100": MachinePrices(flat(2.0))})
    assert [prices.of(machine).per_gpu_hour[0] for machine in machines] == [3.0, 2.0, 1.0]
    assert not prices.unused_types(machines)
    two = Prices(types={"a100-40gb": MachinePrices(), "a100-80gb": MachinePrices()}, name="prices.yaml")
    two.check(machines)  # of which one has its memory in its name
    with pytest.raises(InputError, match=r"prices.yaml: types: 'A100' .* can be 'a100-40gb' or 'a100-80gb'"):
        two.check([Machine("a", 4, "A100")])


def test_what_idle_machines_cost_a_day_has_their_price_and_energy() -> None:
    prices = Prices(MachinePrices(flat(2.0), idle_watts=100.0, machine_watts=200.0), per_kwh=flat(0.5))
    clock = price_clock(WINDOW, None, "UTC")
    # a: 4 GPUs at $2 and 600 W at $0.50; b: 8 GPUs and 1,000 W.
    assert idle_cost_a_day(TWO, prices, clock, WINDOW) == pytest.approx(24 * (8 + 0.3 + 16 + 0.5))


def test_prices_follow_the_hour_of_the_day_in_their_zone() -> None:
    rates = tuple(float(hour) for hour in range(HOURS))
    berlin = Prices(MachinePrices(rates), zone="Europe/Berlin")
    one = (Machine("a", 1),)
    none = BUSY.clear()
    # 00:30 UTC is 01:30 in Berlin in winter: half an hour at 1, an hour at 2, half an hour at 3.
    assert cost(none, one, berlin, (1800.0, 9000.0), 0.0).on.sum() == pytest.approx(0.5 * 1 + 2 + 0.5 * 3)
    # On 2026-03-29 the clock goes from 2 to 3 at 01:00 UTC: hours 1, 3, 4.
    spring = 1774742400.0  # 2026-03-29T00:00:00Z
    assert cost(none, one, berlin, (0.0, 10800.0), spring).on.sum() == pytest.approx(1 + 3 + 4)
    # On 2026-10-25 it goes back from 3 to 2 at 01:00 UTC: hour 2 is there twice.
    autumn = 1792886400.0
    assert cost(none, one, berlin, (0.0, 10800.0), autumn).on.sum() == pytest.approx(2 + 2 + 3)
    # India is half an hour off: from 00:00 UTC half an hour at 5 and one at 6.
    kolkata = Prices(MachinePrices(rates), zone="Asia/Kolkata")
    assert cost(none, one, kolkata, (0.0, 5400.0), 0.0).on.sum() == pytest.approx(0.5 * 5 + 6)
    # Without a date the mean of the day is taken.
    assert cost(none, one, berlin, (0.0, 7200.0), None).on.sum() == pytest.approx(2 * 11.5)
    assert berlin.by_hour
    assert not Prices.simple(1.0).by_hour


def test_money_falls_into_its_weeks() -> None:
    window = (100.0, 100.0 + 2.5 * WEEK_S)
    assert block_edges_s(window, WEEK_S).tolist() == [
        100.0,
        100.0 + WEEK_S,
        100.0 + 2 * WEEK_S,
        100.0 + 2.5 * WEEK_S,
    ]
    assert block_edges_s((0.0, 2 * WEEK_S), WEEK_S).size == 3
    # One machine, held from the middle of the first week to the middle of the second.
    middle, later = 100.0 + 0.5 * WEEK_S, 100.0 + 1.5 * WEEK_S
    runs = pl.DataFrame([(middle, later, 0, 1)], schema=RUNS, orient="row")
    found = cost(runs, (Machine("a", 2),), Prices(MachinePrices(flat(1.0), boot_cost=5.0)), window)
    week_h = 7 * 24.0
    assert found.on.tolist() == pytest.approx([2 * week_h, 2 * week_h, week_h])
    assert found.held_gpu_hours.tolist() == pytest.approx([week_h / 2, week_h / 2, 0])
    assert found.saved.tolist() == pytest.approx([week_h - 5, week_h, week_h])
    assert found.boots.tolist() == [1, 0, 0]


@st.composite
def minute_runs(draw: st.DrawFn) -> pl.DataFrame:
    rows = []
    for machine in range(2):
        for gpu in range(2):
            at = draw(st.integers(-30, 60))
            for _ in range(draw(st.integers(0, 3))):
                end = at + draw(st.integers(1, 120))
                rows.append((at * 60.0, end * 60.0, machine, 1 << gpu))
                at = end + draw(st.integers(0, 90))
    return pl.DataFrame(rows, schema=RUNS, orient="row")


rates = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=HOURS, max_size=HOURS).map(tuple)
amounts = st.sampled_from([0.0, 40.0, 300.0])
machine_prices = st.builds(
    MachinePrices, rates, amounts, amounts, amounts, off_watts=st.just(20.0),
    boot_s=st.sampled_from([0.0, 300.0, 1200.0]), boot_cost=st.sampled_from([0.0, 0.5, 2.0]),
)  # fmt: skip


@settings(max_examples=examples(25), deadline=None)
@given(
    minute_runs(), machine_prices, machine_prices, rates, st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"])
)
def test_sums_are_those_of_a_walk_minute_by_minute(
    runs: pl.DataFrame, some: MachinePrices, others: MachinePrices, per_kwh: tuple[float, ...], zone: str
) -> None:
    machines = Machine("a", 2, "T4"), Machine("b", 2)
    prices = Prices(some, {"t4": others}, per_kwh, zone, least_off_s=600.0)
    window, zero = (0, 240 * 60), 1774739000 // 60 * 60
    walked = cost_by_minutes(runs, machines, prices, window, zero)
    found = cost(runs, machines, prices, (0.0, 240 * 60.0), float(zero))
    sums = (found.on, found.busy_energy, found.idle_energy, found.saved, found.boots)
    assert [each.sum() for each in sums] == pytest.approx([*walked], abs=1e-8)
    assert found.saved.sum() >= 0
    assert found.all_on.sum() >= found.total.sum()


def test_a_saving_has_an_interval_from_four_weeks_on() -> None:
    before, after = np.full(3, 700.0), np.array([0.0, 350.0, 700.0])
    short = saving(before, after, (0.0, 3 * WEEK_S))
    assert short.a_day == pytest.approx(50.0)
    assert short.a_year == pytest.approx(50.0 * 365)
    assert short.interval is None
    assert short.year_interval is None
    assert short.why_no_interval == "no interval: the window has 3 whole weeks, and resampling takes 4"
    weeks = np.array([100.0, 200.0, 300.0, 400.0, 500.0, 600.0]) * 7
    found = saving(np.full(6, 7000.0), 7000.0 - weeks, (0.0, 6 * WEEK_S), seed=1)
    assert found.a_day == pytest.approx(350.0)
    assert found.interval is not None
    # The mean of six such weeks has a standard error of 76; Student's t with 5 degrees of freedom is 2.57.
    assert found.interval.low == pytest.approx(350 - 2.57 * 76, abs=35)
    assert found.interval.high == pytest.approx(350 + 2.57 * 76, abs=35)
    assert found.year_interval is not None
    assert found.year_interval.low == pytest.approx(365 * found.interval.low)
    assert not found.why_no_interval
    again = saving(np.full(6, 7000.0), 7000.0 - weeks, (0.0, 6 * WEEK_S), seed=1)
    assert again == found


def test_equal_weeks_leave_no_doubt() -> None:
    found = saving(np.full(5, 100.0), np.full(5, 30.0), (0.0, 5 * WEEK_S))
    assert found.interval is not None
    assert [found.interval.low, found.interval.high] == pytest.approx([10.0, 10.0])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for trial in range(200):
        weeks = rng.normal(70.0, 30.0, 6)
        interval = saving(weeks, np.zeros(6), (0.0, 6 * WEEK_S), seed=trial).interval
        assert interval is not None
        hits += interval.low <= 10.0 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_a_file_gives_prices_for_all_types_and_others_for_some(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "zone: Europe/Berlin\nper_gpu_hour: 2\nper_kwh: 0.2\nboot_s: 300\nidle_watts: 60\n"
        f"types:\n  A100:\n    per_gpu_hour: {[float(hour) for hour in range(24)]}\n    boot_cost: 1\n"
    )
    prices = read_prices(path)
    assert prices.zone == "Europe/Berlin"
    assert prices.of(Machine("a", 8, "a100")).per_gpu_hour[5] == 5.0
    assert prices.of(Machine("a", 8, "a100")).boot_s == 300.0
    assert prices.of(Machine("a", 8, "a100")).idle_watts == 60.0
    assert prices.of(Machine("b", 8)).per_gpu_hour == flat(2.0)
    assert prices.of(Machine("b", 8)).boot_cost == 0.0
    assert prices.least_off_s == 0.0
    path.write_text("per_gpu_hour: 2\n")
    assert read_prices(path).least_off_s == Prices.simple(2.0).least_off_s == 900.0
    assert read_prices(path).every == Prices.simple(2.0).every


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("zone: Mars/Base\n", ":1: zone: must be the name of a time zone, such as Europe/Berlin, not 'Mars/Base'"),
        ("per_gpu_hour: [1, 2]\n", ":1: per_gpu_hour: must be a number, zero or more, or a list of 24"),
        ("types:\n  a100:\n    watts: 3\n", ":3: types.a100: unknown field 'watts'"),
        (
            "types:\n  a100:\n    idle_watts: -3\n",
            ":3: types.a100.idle_watts: must be a number, zero or more, not -3",
        ),
        ("idle_watts: 60\n", "has watts but not `per_kwh`"),
        ("pergpu_hour: 1\n", "unknown field 'pergpu_hour'; did you mean 'per_gpu_hour'?"),
        (
            "types:\n  a: {boot_s: 3}\n  A: {boot_s: 4}\n",
            ":3: types.A: is the same type as 'a', which is given above",
        ),
        (
            "types:\n  a100: {boot_s: 3}\n  Tesla A100: {boot_s: 4}\n",
            ":3: types.Tesla A100: is the same type as 'a100', which is given above",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_prices(path)
    assert problem in str(caught.value)
    assert str(caught.value).count("\n") == 0
