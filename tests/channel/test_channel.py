"""The files of the channel: what is written is read, what makes no sense is refused, and nothing else happens."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import samples as reference

from cranny.channel import files
from cranny.channel.control import (
    AGREED,
    CONTROL,
    Agreed,
    CheckpointRequest,
    Control,
    Pace,
    asdict_plain,
    samples,
)
from cranny.channel.report import KEPT, Record, Report, Resumed, Saved, report_file
from cranny.model.errors import InputError

SECONDS = st.floats(0.0, 1e9)
NUMBERS = st.integers(1, 2**53)
CONTROLS = st.builds(
    Control,
    number=st.integers(0, 2**53),
    pace=st.none() | st.builds(Pace, st.floats(1e-3, 1e6), SECONDS, SECONDS),
    shares=st.none() | st.lists(st.floats(0.01, 1.0), min_size=1, max_size=9).map(tuple),
    aggregate=st.none() | st.booleans() | st.lists(st.integers(0, 99), max_size=4).map(tuple),
    checkpoint=st.none()
    | st.builds(CheckpointRequest, NUMBERS, SECONDS, st.sampled_from(["moved", "resized", "stopped"])),
)


# -- controls --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(CONTROLS)
def test_ranks_read_exactly_what_rank_0_decided_from(control: Control) -> None:
    decided = Control.of(json.loads(json.dumps(asdict_plain(control))))
    assert decided.pace == control.pace
    assert decided.checkpoint == control.checkpoint
    assert decided.aggregate == control.aggregate
    if control.shares is not None:
        assert decided.shares == pytest.approx([each / sum(control.shares) for each in control.shares])
    again = Control.of(json.loads(json.dumps(asdict_plain(decided))))
    assert again == decided  # to the last bit, so that all ranks divide a batch alike


def test_a_control_and_an_agreement_come_through_their_files(tmp_path: Path) -> None:
    assert Control.read(tmp_path) is None
    assert Agreed.read(tmp_path) is None
    control = Control(3, Pace(0.25, 0.1, 0.0), (0.25, 0.75), (0, 2), CheckpointRequest(1, 1.8e9, "moved"))
    control.write(tmp_path)
    Agreed(17, control).write(tmp_path)
    assert Control.read(tmp_path) == control
    assert Agreed.read(tmp_path) == Agreed(17, control)
    assert sorted(each.name for each in tmp_path.iterdir()) == [AGREED, CONTROL]
    assert (tmp_path / CONTROL).stat().st_mode & 0o777 == 0o644  # of a folder that lets two accounts in


VALUES: st.SearchStrategy[Any] = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats()), *(st.text(max_size=8), st.just([]), st.just({}))
)
FIELDS = [*Control.__dataclass_fields__, "from_step", "control", *Record._fields, *Saved._fields]
FIELDS += ["token", "rank", "records", "saved", "resumed", "version", *Pace._fields, *CheckpointRequest._fields]
INNER = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8)
LISTS = st.lists(VALUES | INNER, max_size=3)
OBJECTS = st.dictionaries(st.sampled_from(FIELDS), VALUES | INNER | LISTS, max_size=8)


@settings(max_examples=examples(200))
@given(OBJECTS)
def test_garbage_is_refused_and_no_other_error_comes_of_it(value: dict[str, Any]) -> None:
    for of, given_value in ((Control.of, value), (Agreed.of, {"from_step": 1, "control": value})):
        try:
            of({"number": 1, **given_value})
        except InputError:
            continue


@settings(max_examples=examples(200))
@given(text=st.binary(max_size=100) | st.builds(json.dumps, OBJECTS).map(str.encode))
def test_a_file_of_garbage_is_refused_and_no_other_error_comes_of_it(
    text: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    report_file(folder, 0).write_bytes(text)
    with pytest.raises(InputError):  # by the token at the latest
        Report.read(folder, 0, "x" * 32)


@settings(max_examples=examples(200))
@given(st.lists(INNER, max_size=3), VALUES | INNER, VALUES | INNER)
def test_a_report_with_the_right_token_and_garbage_is_refused_and_no_other_error_comes_of_it(
    tmp_path_factory: pytest.TempPathFactory, records: list[object], saved: object, resumed: object
) -> None:
    folder = tmp_path_factory.getbasetemp()
    value = {"version": 1, "token": "x", "rank": 0, "records": records, "saved": saved, "resumed": resumed}
    report_file(folder, 0).write_text(json.dumps(value), encoding="ascii")
    try:
        Report.read(folder, 0, "x")
    except InputError:
        return


# -- division --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(st.integers(0, 5000), st.lists(st.floats(0.0, 1e308), min_size=1, max_size=12))
def test_samples_add_up_to_the_batch_and_are_within_one_of_their_share(
    batch: int, given_shares: list[float]
) -> None:
    if max(given_shares) == 0.0:
        return
    ranks = len(given_shares)
    shares = Control.of({"number": 0, "shares": given_shares}).shares
    assert shares is not None
    assert sum(shares) == pytest.approx(1.0)
    found = samples(batch, shares, ranks)
    assert found == reference.samples(batch, shares, ranks)
    assert sum(found) == batch
    least = 1 if batch >= ranks else 0
    assert min(found) >= least
    if all(share * batch >= least for share in shares):
        assert all(abs(own - share * batch) < 1.0 + 1e-6 for own, share in zip(found, shares, strict=True))


@given(st.integers(0, 100), st.integers(1, 9))
def test_without_shares_or_with_those_of_other_ranks_samples_are_divided_equally(batch: int, ranks: int) -> None:
    found = samples(batch, None, ranks)
    assert found == samples(batch, (1.0,) * (ranks + 1), ranks)
    assert max(found) - min(found) <= 1
    assert sorted(found, reverse=True) == list(found)


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [1.0, -1.0], [float("nan")], "1", {"0": 1}])
def test_shares_that_make_no_sense_are_refused(shares: object) -> None:
    with pytest.raises(InputError, match=r"^shares must"):
        Control.of({"number": 1, "shares": shares})


# -- reports ---------------------------------------------------------------------------------------------------

RECORDS = st.lists(
    st.builds(
        Record,
        number=st.just(1),
        at_s=SECONDS,
        step=NUMBERS,
        iterations=NUMBERS,
        wall_s=st.just(1e9),
        waited_s=st.floats(0.0, 4e8),
        compute_s=st.floats(0.0, 5e8),
        comm_s=SECONDS,
        comm_start_s=st.none() | SECONDS,
        comm_end_s=st.none() | SECONDS,
        samples=SECONDS,
        gradient_bytes=st.none() | SECONDS,
        paced=st.booleans(),
        period_s=SECONDS,
    ),
    max_size=KEPT + 3,
)


@settings(max_examples=examples(50))
@given(RECORDS, st.none() | st.builds(Saved, NUMBERS, SECONDS, SECONDS, st.integers(0, 9)))
def test_a_report_is_read_as_written_with_the_latest_records(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], saved: Saved | None
) -> None:
    folder = tmp_path_factory.getbasetemp()
    numbered = tuple(each._replace(number=number) for number, each in enumerate(records, 1))
    report = Report(2, numbered, saved, Resumed(0, 1.0, 2.0))
    report.write(folder, "token")
    assert Report.read(folder, 2, "token") == report._replace(records=numbered[-KEPT:])
    assert report_file(folder, 2).stat().st_size < files.MAX_BYTES / 2


GOOD = Record(1, 5.0, 10, 10, 1.0)._asdict()
LIES = [
    ({"token": "another"}, "not of this attempt"),
    ({"rank": 1}, "another one"),
    ({"records": [GOOD] * (KEPT + 1)}, "at most 32"),
    ({"records": [GOOD, GOOD]}, "in order"),
    ({"records": [{**GOOD, "iterations": 0}]}, "iterations must be"),
    ({"records": [{**GOOD, "wall_s": 1e300}]}, "wall_s must be at most"),
    ({"records": [{**GOOD, "wall_s": "fast"}]}, "wall_s must be a number"),
    ({"records": [{**GOOD, "waited_s": 0.6, "compute_s": 0.6}]}, "together more than wall_s"),
    ({"records": [{**GOOD, "paced": 1}]}, "paced must be true or false"),
    ({"saved": {"step": -1, "at_s": 1, "took_s": 0}}, "saved: step"),
    ({"resumed": [1]}, "resumed must be an object"),
    ({"version": 2}, "version 1"),
]


@pytest.mark.parametrize(("change", "wrong"), LIES)
def test_a_report_that_cannot_be_true_is_refused(tmp_path: Path, change: dict[str, object], wrong: str) -> None:
    value = {"version": 1, "token": "token", "rank": 0, "records": [GOOD]}
    file = report_file(tmp_path, 0)
    file.write_text(json.dumps(value), encoding="ascii")
    assert Report.read(tmp_path, 0, "token") == Report(0, (Record(**GOOD),))
    file.write_text(json.dumps({**value, **change}), encoding="ascii")
    with pytest.raises(InputError, match=wrong):
        Report.read(tmp_path, 0, "token")


# -- files -----------------------------------------------------------------------------------------------------


def test_files_that_are_no_plain_small_files_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"version": 1}', encoding="ascii")
    file = tmp_path / "report-0.json"
    file.symlink_to(secret)
    with pytest.raises(InputError, match="cannot be read"):
        files.read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InputError, match="not a plain file"):
        files.read(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(InputError, match="not a plain file"):
        files.read(file)
    file.rmdir()
    file.write_text('{"version": 1, "x": "' + "x" * files.MAX_BYTES + '"}', encoding="ascii")
    with pytest.raises(InputError, match="larger than"):
        files.read(file)
    file.write_text("[" * 50_000, encoding="ascii")
    with pytest.raises(InputError, match="not JSON"):
        files.read(file)


def test_a_write_does_not_follow_a_link_and_leaves_no_draft(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (tmp_path / f".control.json.{os.getpid()}").symlink_to(other)
    files.write(tmp_path / CONTROL, {})
    assert not other.exists()
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write(tmp_path / CONTROL, {"x": float("nan")})
    assert [path.name for path in tmp_path.iterdir()] == [CONTROL]


def test_a_watched_file_is_read_when_it_was_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    watched = files.Watched(file)
    assert watched.read(0.0) is None
    for number in range(5):
        files.write(file, {"number": number})
        found = watched.read(file.stat().st_mtime)
        assert found is not None
        assert found["number"] == number
    assert watched.read(file.stat().st_mtime) is not None  # it may have been replaced at the same moment
    assert watched.read(file.stat().st_mtime + 1.0) is None
    file.write_text("{", encoding="ascii")
    for _ in range(2):  # again, in case it was the disk
        with pytest.raises(InputError):
            watched.read(0.0)
