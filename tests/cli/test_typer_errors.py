"""Wrong usage gets one line like any other bad input, and help says what takes a value."""

import re

import pytest
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["network", "philly", "--top", "x"], "--top: "),
        (["network", "philly", "--top=-1"], "--top: "),
        (["compare", "philly", "--processes", "1.5"], "--processes: "),
        (["simulate", "philly", "--load", "much"], "--load: "),
        (["network"], "TRACE: must be given"),
        (["place", "-g"], "-g: "),
        (["place"], "--gpus: must be given"),
        (["explain"], "TRACE: must be given"),
        (["bench", "--check=yes"], "--check: "),
        (["network", "philly", "--tpo", "3"], "unknown option '--tpo'; did you mean '--top'?"),
        (["policies", "--everything"], "unknown option '--everything'; known: --help, --json, -h"),
        (["policies", "-x"], "unknown option '-x'"),
        (["netwrk"], "unknown command 'netwrk'; did you mean 'network'?"),
        (["traces", "inspct"], "unknown command 'inspct'; did you mean 'inspect'?"),
        (["repro", "titn"], "unknown command 'titn'; did you mean 'titan'?"),
        (["policies", "titan"], "got unexpected extra argument"),
    ],
)
def test_wrong_usage_gets_one_line(run: Run, words: list[str], message: str) -> None:
    ran = run(*words)
    refused(ran, message)
    assert ran.err.startswith(f"cranny: {message}")
    assert "Usage" not in ran.err


def test_a_value_that_is_no_number_is_shown(run: Run) -> None:
    refused(run("network", "philly", "--top", "many"), "--top: ", "'many'")
    refused(run("network", "philly", "--top", "m" * 1000), "--top: ")


@pytest.mark.parametrize("words", [[], ["traces"], ["repro"], ["policy"], ["token"]])
def test_help_is_shown_where_a_command_is_missing(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert ran.err == ""
    assert ran.out.count("Usage: ") == 1
    assert run(*words, "--help").code == 0


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ([], ["--version", "--help", "--install-completion"]),
        (["network"], ["--json", "--help", "--strict"]),
        (["traces"], ["--help"]),
        (["traces", "slice"], ["--from-zero", "--json", "--help"]),
        (["policy", "show"], ["--json"]),
        (["repro", "has"], ["--quick"]),
    ],
)
def test_flags_are_shown_without_a_value(run: Run, words: list[str], flags: list[str]) -> None:
    shown = run(*words, "--help").out
    assert not re.search("bool", shown, re.IGNORECASE)
    for flag in flags:
        assert flag in shown


def test_options_with_a_value_say_so(run: Run) -> None:
    line = next(line for line in run("network", "--help").out.splitlines() if "--top" in line)
    assert re.search(r"<?int", line, re.IGNORECASE)
