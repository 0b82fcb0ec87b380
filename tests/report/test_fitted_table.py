import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.report.fitted_table import FittedColumn, FittedTable
from cranny.report.text_table import TextTable, terminal_table

MONEY = TextTable(
    "Machines and money",
    "How to read it.",
    ("", "machines", "idle", "machine-hours a day", "saved a day", "saved a year"),
    [
        ["best-fit", "64.0", "12.3", "1,234", "$3,256", "$1,188,440"],
        ["cranny", "60.0", "16.3", "1,134", "$13,256", "$11,188,440"],
    ],
)


def text(table: FittedTable, width: int) -> str:
    return "\n".join("".join(part for part, _ in line) for line in table.lines(width))


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 1000])
def test_money_is_never_cut(width: int) -> None:
    shown = text(terminal_table(MONEY), width)
    for row in MONEY.rows:
        for cell in row:
            assert re.search(rf"(?<!\S){re.escape(cell)}(?!\S)", shown), cell
    assert max(map(len, shown.splitlines())) <= width


def test_heads_are_broken_where_columns_do_not_fit() -> None:
    assert text(terminal_table(MONEY), 61).splitlines()[1:5] == [
        "                       machine-hours a   saved a",
        "         machines idle             day       day saved a year",
        "─────────────────────────────────────────────────────────────",
        "best-fit     64.0 12.3           1,234    $3,256   $1,188,440",
    ]


def test_few_rows_become_columns() -> None:
    assert text(terminal_table(MONEY), 42).splitlines()[1:4] == [
        "                      best-fit      cranny",
        "──────────────────────────────────────────",
        "machines                  64.0        60.0",
    ]


def test_columns_of_many_rows_follow_below() -> None:
    many = FittedTable(
        [
            FittedColumn("policy", [f"p{row}" for row in range(20)], right=False),
            FittedColumn("first", ["1,000,000"] * 20),
            FittedColumn("second", ["2,000,000"] * 20),
        ]
    )
    shown = text(many, 18).splitlines()
    assert shown[0] == "policy     first"
    assert shown[len(shown) // 2 + 1] == "policy    second"


def test_what_may_be_left_out_is_named() -> None:
    jobs = FittedTable(
        [
            FittedColumn("job", ["job-1"], right=False),
            FittedColumn("name", ["a-very-long-name-of-a-job"], spare=2),
            FittedColumn("GPUs", ["3,256"]),
            FittedColumn("user", ["somebody"], spare=1),
        ]
    )
    shown = text(jobs, 24)
    assert "a-very" not in shown
    assert "somebody" in shown
    assert "dropped for lack of space: name (" in " ".join(shown.split())
    assert "left out" not in text(jobs, 80)


NUMBERS = st.integers(-(10**9), 10**9).map(lambda value: f"${value:,}")
HEADS = st.lists(st.sampled_from(["mean", "wait", "machine-hours", "a", "day", "p99"]), max_size=3).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> FittedTable:
    rows = draw(st.integers(1, 12))
    columns = [FittedColumn("policy", [f"row{row}" for row in range(rows)], right=False)]
    for place in range(draw(st.integers(0, 8))):
        head = f"{draw(HEADS)} c{place}"
        cells = draw(st.lists(NUMBERS, min_size=rows, max_size=rows))
        words = draw(st.booleans())
        if words:
            cells = [f"{cell} of some jobs" for cell in cells]
        columns.append(FittedColumn(head, cells, words=words, spare=draw(st.integers(0, 2))))
    return FittedTable(columns, gap=draw(st.integers(1, 2)), title="Of $1,234,567 in all")


@given(tables(), st.integers(8, 150))
def test_every_number_is_whole_or_its_column_is_named_below(table: FittedTable, width: int) -> None:
    shown = text(table, width)
    words = shown.split()
    below = " ".join(words).partition("dropped for lack of space:")[2]
    printed = sum("$" in word for word in words)
    expected = 1
    for column in table.columns[1:]:
        if column.spare and re.search(rf"(?<!\S){column.head.split()[-1]}[, ]", below):
            continue
        expected += len(column.cells)
        for cell in column.cells:
            assert cell.split()[0] in words
    assert printed == expected  # and no part of a number
    longest = max(
        len(word) for column in table.columns for cell in (column.head, *column.cells) for word in cell.split()
    )
    if width >= 2 * longest + 8:
        assert max(map(len, shown.splitlines())) <= width
