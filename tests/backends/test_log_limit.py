"""Logs of ranks: limited, the newest is kept, and writing never waits for a supervisor."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.contract import CLUSTER, PATIENCE_S
from tests.backends.local_harness import LocalHarness, appears
from tests.examples import examples

from cranny.backends.local import LocalBackend
from cranny.backends.log_writer import LimitedLog
from cranny.backends.protocol import Launch, Rank
from cranny.backends.rank_logs import PARTS, log_of, part_of, read_log_bytes

LIMIT = 1_000_000


def on_disk(folder: Path) -> int:
    """Return the bytes of all logs of a folder."""
    found = 0
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            found += path.stat().st_size
    return found


@settings(max_examples=examples(60))
@given(
    limit=st.integers(PARTS, 200),
    written=st.lists(st.binary(max_size=120).map(lambda each: each.replace(b"\0", b"\n")), max_size=40),
    offset=st.integers(-300, 3000),
)
def test_of_what_was_written_the_newest_is_kept_and_offsets_stay_valid(
    limit: int, written: list[bytes], offset: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("log") / "rank-0.log"
    limited, whole = LimitedLog(log, limit), b"".join(written)
    for data in written:
        limited.add(data)
        assert sum(path.stat().st_size for path in log.parent.iterdir()) <= limit
    found = read_log_bytes(log, offset, 10_000)
    assert found.asked == (offset if offset >= 0 else max(0, len(whole) + offset))
    assert found.start == max(found.asked, found.kept_from)
    assert found.data == whole[found.start :]
    # A line that would cross the end of a part begins the next, so a part may be left with some space.
    longest = max(map(len, whole.split(b"\n"))) + 1
    assert len(whole) - found.kept_from >= min(len(whole), (limit // PARTS - longest) * (PARTS - 1))


def test_whole_lines_stay_in_one_file(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    limited = LimitedLog(log, 40)
    for number in range(7):
        limited.add(b"line %d\n" % number)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"rank-0.{at}.log" for at in (21, 28, 35, 42)]
    assert part_of(log, 42).read_bytes() == b"line 6\n"
    assert read_log_bytes(log, -7, 100).data == b"line 6\n"


def test_output_that_cannot_be_stored_is_dropped_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "attempt"
    limited = LimitedLog(folder / "rank-0.log", 1000)
    limited.add(b"lost")
    limited.add(b"lost, too")
    folder.mkdir()
    limited.add(b"kept\n")
    text = "cranny: 13 bytes of output were dropped: No such file or directory\nkept\n"
    assert (folder / "rank-0.log").read_text() == text
    limited.add(b"more\n")
    assert (folder / "rank-0.log").read_text() == f"{text}more\n"


def launched(tmp_path: Path, script: str) -> tuple[LocalBackend, Launch]:
    backend = LocalBackend(CLUSTER, (), log_limit=LIMIT)
    what = Launch("a", 1, ("bash", "-c", script), (Rank(0, 0, 0),), {}, None, tmp_path / "a", None)
    backend.launch(what)
    return backend, what


def ended(backend: LocalBackend) -> list[str]:
    until = time.monotonic() + PATIENCE_S
    while not (found := backend.poll()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return [each.reason for each in found]


def test_a_job_that_writes_without_end_stays_within_its_limit_and_can_be_cancelled(tmp_path: Path) -> None:
    backend, what = launched(tmp_path, "trap '' PIPE; exec seq -f 'line %.0f' 1000000000")
    most, end, until = 0, 0, time.monotonic() + PATIENCE_S
    log = log_of(what.log_dir, 0)
    while end < 10 * LIMIT:
        assert time.monotonic() < until
        most = max(most, on_disk(what.log_dir))
        found = read_log_bytes(log, -100, 100)
        end = found.asked + len(found.data)
    assert most <= LIMIT * (PARTS + 1) // PARTS  # one may be listed that is deleted before the next begins
    backend.stop("a", 0.5)
    assert ended(backend) == ["cancelled"]
    assert on_disk(what.log_dir) <= LIMIT
    newest = read_log_bytes(log, -2 * LIMIT, 2 * LIMIT)
    lines = newest.data.decode().splitlines()
    assert len(newest.data) > LIMIT // 2
    assert lines[0].startswith("line ")
    numbers = [int(line.split()[1]) for line in lines[:-1]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert not list(what.log_dir.glob("*.pipe"))


def test_a_job_has_no_file_of_its_log_that_it_could_make_larger(tmp_path: Path) -> None:
    """Known ways to take space without writing: to allocate it, to set the size, to seek beyond the end."""
    script = """python3 - <<'END'
import os
for take in (os.posix_fallocate, 0, 10**9), (os.ftruncate, 10**9), (os.lseek, 10**9, 0):
    try:
        take[0](1, *take[1:])
    except OSError as error:
        print(error.strerror)
END"""
    backend, what = launched(tmp_path, script)
    assert ended(backend) == ["finished"]
    text = log_of(what.log_dir, 0).read_text()
    assert text.splitlines() == ["Illegal seek", "Invalid argument", "Illegal seek"]


def test_a_rank_goes_on_writing_while_its_supervisor_is_stopped(tmp_path: Path) -> None:
    """More than a pipe holds, and with a stop of the supervisor that only the time limit would end."""
    go = tmp_path / "go"
    script = (
        f"echo up; while [ ! -e {go} ]; do sleep 0.02; done; seq 300000; echo over > {tmp_path}/over; sleep 600"
    )
    backend, what = launched(tmp_path, script)
    appears(log_of(what.log_dir, 0))
    known = json.loads((what.log_dir / "attempt-1.pid").read_text())
    os.kill(known["pid"], signal.SIGSTOP)
    go.touch()
    appears(tmp_path / "over")
    backend.stop("a", 0.0)
    assert ended(backend) == ["cancelled"]
    assert read_log_bytes(log_of(what.log_dir, 0), -7, 7).data == b"300000\n"


def test_what_writes_after_its_supervisor_was_killed_neither_waits_nor_loses_output(harness: LocalHarness) -> None:
    """A child that escaped, as it can without control groups: it is ended by the next look of the backend."""
    folder = harness.folder
    child = (
        f"while [ ! -e {folder}/go ]; do sleep 0.02; done; seq 300000; echo over > {folder}/over; exec sleep 600"
    )
    script = f"(setsid sh -c 'echo $$ > {folder}/escaped; {child}' &) ; echo up; exec sleep 600"
    what = Launch("a", 1, ("sh", "-c", script), (Rank(0, 0, 0),), {}, None, folder / "a", None)
    harness.backend.launch(what)
    appears(log_of(what.log_dir, 0))
    appears(folder / "escaped")
    known = json.loads((what.log_dir / "attempt-1.pid").read_text())
    os.kill(known["pid"], signal.SIGKILL)
    (folder / "go").touch()
    appears(folder / "over")
    assert [each.reason for each in harness.ends()] == ["lost"]
    until = time.monotonic() + PATIENCE_S
    while list(what.log_dir.glob("*.pipe")):  # its log writer ends with the last that could write
        assert time.monotonic() < until
        time.sleep(0.02)
    assert read_log_bytes(log_of(what.log_dir, 0), -7, 7).data == b"300000\n"
