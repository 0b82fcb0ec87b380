"""`cranny profile`: run a training script for a while, and write down what an iteration of it costs."""

import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

from cranny.channel.files import FOLDER_VARIABLE, TOKEN_VARIABLE
from cranny.channel.report import Record, Report
from cranny.cli import options
from cranny.cli.console import print_json, progress, say, warn
from cranny.cli.interrupt import takes_its_time
from cranny.cli.options import argument, option
from cranny.model.errors import CrannyError, InputError
from cranny.model.profile import ProfileLibrary
from cranny.model.validate import MAX_GPUS, counted, positive

STOP_S = 10.0  # for a script to end by itself
LOOK_S = 0.2  # between two looks at its reports
WARM_UP = 2  # records of the first seconds, which do not count if there are more
AGENT = "`cranny.agent.torch.connect` and then `step` in every iteration"
COMMAND_HELP = "The script and its arguments, after `--`; any program that starts ranks, such as torchrun."


class _Rank(NamedTuple):
    """What an iteration of a rank takes: medians over records, in ms."""

    iteration_ms: float
    compute_ms: float
    comm_start_ms: float | None
    comm_end_ms: float | None
    samples: float
    gradient_bytes: float | None
    iterations: int


def profile(
    command: Annotated[list[str], argument("COMMAND...", COMMAND_HELP)],
    file: Annotated[Path, option("--out", "Write the profile to this file.", short="-o")] = Path("profile.json"),
    name: Annotated[str | None, option("--name", "Of the model; that of the script if not given.")] = None,
    for_s: Annotated[float, option("--seconds", "To measure, from the first report on.", positive)] = 60.0,
    start_s: Annotated[float, option("--start-within", "Seconds until the first report.", positive)] = 300.0,
    as_json: options.JsonOption = False,
) -> None:
    """Run a training script for a minute, and write a profile of its model from what it reports.

    The script must use the agent (docs/use/torch.md). It is stopped when the time is over.

    Example: cranny profile --out mine.json -- python train.py --epochs 1
    """
    options.check_file(file, "--out")
    if not command:
        raise InputError("COMMAND: must be given, after --")
    model = name or _name_of(command)
    with tempfile.TemporaryDirectory(prefix="cranny-profile-") as folder:
        token = secrets.token_hex(16)
        ended = _run(command, Path(folder), token, for_s, start_s)
        ranks = [_rank(report.records) for report in _reports(Path(folder), token) if report.records]
    if not ranks:
        how = f"was stopped after {start_s:g} s" if ended is None else f"has ended with code {ended}"
        raise CrannyError(f"{command[0]} {how} and reported nothing: a script must call {AGENT}")
    if ended:
        warn(f"{command[0]} has ended with code {ended}; the profile is of what it did before")
    facts = _facts(model, ranks, command)
    ProfileLibrary({}).with_text(json.dumps(facts), str(file))  # so that the file is known to be read again
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(facts)
    else:
        _show(model, facts, ranks, file)


def _name_of(command: Sequence[str]) -> str:
    """Return the name of a script: that of the first file of Python in its command, or of its program."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    return Path(script).stem


def _run(command: Sequence[str], folder: Path, token: str, for_s: float, start_s: float) -> int | None:
    """Run a script for so long, or until it ends; return how it ended, None if it had to be stopped."""
    env = {**os.environ, FOLDER_VARIABLE: str(folder), TOKEN_VARIABLE: token}
    with _started(command, env) as script, progress("measuring", round(for_s)) as tick:
        began_s = time.monotonic()
        since_s: float | None = None
        while script.poll() is None:
            now_s = time.monotonic()
            if since_s is None and any(folder.glob("report-*.json")):
                since_s = now_s
            if since_s is None and now_s > began_s + start_s:
                return None
            if since_s is not None:
                tick(min(for_s, now_s - since_s))
                if now_s > since_s + for_s:
                    return None
            time.sleep(LOOK_S)
        return script.returncode


@contextmanager
def _started(command: Sequence[str], env: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a script in a process group of its own, and end all of it in the end.

    What it prints goes to standard error: standard output is for the profile.
    """
    try:
        script = subprocess.Popen(list(command), env=env, stdout=2, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise InputError(f"COMMAND: {command[0]}: cannot be started: {error.strerror}") from None
    try:
        yield script
    finally:
        with takes_its_time():
            _stop(script)


def _stop(script: "subprocess.Popen[bytes]") -> None:
    """End a script and all processes of its group: first by asking."""
    for number, wait_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
        try:
            os.killpg(script.pid, number)
        except ProcessLookupError:
            break
        end_s = time.monotonic() + wait_s
        while _running(script) and time.monotonic() < end_s:
            time.sleep(LOOK_S / 4)
    script.wait()


def _running(script: "subprocess.Popen[bytes]") -> bool:
    """Return whether any process of a script's group is left."""
    script.poll()
    try:
        os.killpg(script.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _reports(folder: Path, token: str) -> list[Report]:
    """Read the reports of all ranks; those that cannot be used are named."""
    found = []
    for file in sorted(folder.glob("report-*.json")):
        rank = file.stem.partition("-")[2]
        if not rank.isdecimal() or int(rank) > MAX_GPUS:
            continue
        try:
            report = Report.read(folder, int(rank), token)
        except InputError as error:
            warn(f"the report of rank {rank} is not used: {error}")
            continue
        if report is not None:
            found.append(report)
    return found


def _rank(records: Sequence[Record]) -> _Rank:
    """Return what an iteration of a rank takes."""
    settled = records[WARM_UP:] or records[-1:]
    starts = [each.comm_start_s for each in settled if each.comm_start_s is not None]
    ends = [each.comm_end_s for each in settled if each.comm_end_s is not None]
    return _Rank(
        iteration_ms=median(1e3 * (each.wall_s - each.waited_s) / each.iterations for each in settled),
        compute_ms=median(1e3 * each.compute_s / each.iterations for each in settled),
        comm_start_ms=1e3 * median(starts) if starts else None,
        comm_end_ms=1e3 * median(ends) if ends else None,
        samples=median(each.samples / each.iterations for each in settled),
        gradient_bytes=settled[-1].gradient_bytes,
        iterations=sum(each.iterations for each in settled),
    )


def _facts(model: str, ranks: Sequence[_Rank], command: Sequence[str]) -> dict[str, Any]:
    """Return a profile file: one model, at one batch size, as its slowest rank computes."""
    slowest = max(ranks, key=lambda rank: rank.compute_ms)
    if not slowest.gradient_bytes:
        raise CrannyError(
            "the script does not report the size of its gradients: give `gradient_bytes` to its agent"
        )
    measured: dict[str, Any] = {
        "grad_bytes": slowest.gradient_bytes,
        "iteration_ms": round(slowest.compute_ms, 6),
    }
    if slowest.samples >= 1.0:
        measured["batch"] = round(slowest.samples)
    if slowest.comm_start_ms is not None:  # as the service learns it: all gradients from then on
        starts_ms = min(slowest.comm_start_ms, slowest.compute_ms)
        measured["gradient_buckets"] = [[round(starts_ms, 6), max(1, round(slowest.gradient_bytes))]]
    source = f"cranny profile, {counted(len(ranks), 'rank')} of {_name_of(command)}"
    return {"source": source, "models": {model: {"measured": [measured]}}}


def _show(model: str, facts: Mapping[str, Any], ranks: Sequence[_Rank], file: Path) -> None:
    """Print a profile for people, with what to put into a job file."""
    measured, slowest = facts["models"][model]["measured"][0], max(ranks, key=lambda rank: rank.compute_ms)
    done = f"{counted(slowest.iterations, 'iteration')} on {counted(len(ranks), 'rank')}"
    times = f"{slowest.iteration_ms:.4g} ms each, of which {measured['iteration_ms']:.4g} ms compute"
    say(f"{model}: {done}, {times}; {measured['grad_bytes'] / 1e6:.4g} MB of gradients")
    if slowest.comm_start_ms is not None and slowest.comm_end_ms is not None:
        say(f"it communicates from {slowest.comm_start_ms:.4g} to {slowest.comm_end_ms:.4g} ms of an iteration")
    say(f"wrote {file}, for --profiles; in a job file:", f"profile: {json.dumps({'name': model, **measured})}")
