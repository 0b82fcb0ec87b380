"""Blocks of code in Markdown pages: finding them, and running a page from top to bottom in a folder of its own.

A page is run as a reader would follow it: a block with a title is written to the file that the title names, Python
blocks share their names, and commands run in the same folder.

- `sh`: commands that must succeed.
- `console`: commands after `$ `, and what they print, which must be equal; a line `...` stands for any lines, and
  `...` at the end of a line for the rest of it.
- `python`: statements; the value of `expression  # -> value` must be written so. A block with the title "output"
  that follows is what it prints.
- A comment `<!-- not run: reason -->` right above a block keeps it from being run, and one such as
  `<!-- within 5 %: reason -->` lets its numbers be off by so much.
"""

import ast
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cranny.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = {"sh", "console", "python"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*) *(?P<rest>.*)$")
NESTED = re.compile(r" *(?:[-*]|\d+\.) |  |!!!")  # lines that indented text may belong to
REASON = re.compile(r"<!-- not run: (.+?) -->")
WITHIN = re.compile(r"<!-- within (\d+) %: .+? -->")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
SERVE_S = 60.0  # for a server to answer on a busy machine


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    text: str
    reason: str  # why it is not run; empty if it is
    within: float = 0.0  # by which its numbers may be off, as a share


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == "```")
        above = next((line for line in reversed(lines[:number]) if line.strip()), "")
        reason, title = REASON.fullmatch(above.strip()), re.search(r'title="([^"]*)"', opened["rest"])
        inside = [line.removeprefix(opened["indent"]) for line in lines[number + 1 : end]]
        yield Block(
            number + 1,
            opened["language"],
            title[1] if title else "",
            "\n".join(inside) + "\n",
            reason[1] if reason else "",
            int(near[1]) / 100 if (near := WITHIN.fullmatch(above.strip())) else 0.0,
        )
        number = end + 1


def indented(text: str) -> list[int]:
    """Return the lines at which indented code begins; code of our pages is fenced, so that its kind is known."""
    found, inside, last, blank = [], False, "", True
    for number, line in enumerate(text.splitlines(), 1):
        inside ^= FENCE.match(line) is not None
        if not inside and blank and line.startswith("    ") and not NESTED.match(last):
            found.append(number)
        blank = not line.strip()
        last = last if blank else line
    return found


@dataclass
class Page:
    """A page while it is run."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    printed: str = ""
    servers: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, block: Block) -> None:
        """Write, run or compare a block."""
        if block.reason:
            return
        if block.title == "output":
            assert shown(self.printed) == shown(block.text)
        elif block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self.python(block.text, block.within)
        elif block.language in RUN:
            for command, output in commands(block):
                self.command(command, output, block.within)

    def python(self, text: str, within: float = 0.0) -> None:
        """Run statements one by one, and compare values with those that the page gives."""
        lines, out = text.splitlines(), io.StringIO()
        for statement in ast.parse(text).body:
            _, _, value = lines[(statement.end_lineno or 0) - 1].partition("# -> ")
            with redirect_stdout(out):
                if isinstance(statement, ast.Expr):
                    found = eval(compile(ast.Expression(statement.value), "page", "eval"), self.names)  # noqa: S307
                else:
                    exec(compile(ast.Module([statement], []), "page", "exec"), self.names)  # noqa: S102
            if value:
                assert isinstance(statement, ast.Expr), f"no value: {ast.unparse(statement)}"
                assert agree(repr(found), value, within), ast.unparse(statement)
        self.printed = out.getvalue()

    def command(self, command: str, output: str | None, within: float = 0.0) -> None:
        """Run a command of ours, and compare what it prints if that is known."""
        program, *words = shlex.split(command, comments=True)
        assert program == "cranny", f"only our own commands are run: {command}"
        if words[0] == "serve":
            self.serve(words)
            return
        code, printed = cranny(words)
        if output is None:
            assert code == 0, f"{command}\n{printed}"
        else:
            assert agree(printed, output, within), f"{command}\n{printed}"
            assert code == 0 or "cranny: " in output, f"{command} ends with {code}\n{printed}"

    def serve(self, words: list[str]) -> None:
        """Start a server in the background, and wait until it answers."""
        printed = self.folder / "served.txt"
        line = [sys.executable, "-m", "cranny.cli", *words, "--port", "0"]
        with printed.open("w", encoding="utf-8") as out:
            self.servers.append(subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT, text=True))
        end = time.monotonic() + SERVE_S
        while cranny(["jobs"])[0] != 0:
            assert time.monotonic() < end, printed.read_text(encoding="utf-8")
            time.sleep(0.2)

    def close(self) -> None:
        """End the servers that the page started."""
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
            server.wait(SERVE_S)


def commands(block: Block) -> Iterator[tuple[str, str | None]]:
    """Yield the commands of a block; those of a console with what they print."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output if output.strip() else None
    else:
        yield from ((line, None) for line in text.splitlines() if line.strip() and not line.startswith("#"))


def cranny(words: list[str]) -> tuple[int, str]:
    """Run a command of cranny in this process; return its exit code and what it prints.

    Standard error also has progress and times, so it counts only where the command fails.
    """
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["cranny", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
        return code, out.getvalue() + (err.getvalue() if code else "")
    finally:
        sys.argv = before
    return 0, out.getvalue()


def shown(text: str) -> list[str]:
    """Return the lines of a text without blanks at their ends and blank lines around it."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").splitlines()


def agree(printed: str, expected: str, within: float = 0.0) -> bool:
    """Say whether a text is as expected, with `...` for what may be anything, and numbers that may be off."""
    if within:
        both = [" ".join(shown(text)) for text in (printed, expected)]
        words = [NUMBER.sub("0", text).split() for text in both]
        numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in both]
        return words[0] == words[1] and all(
            abs(one - other) <= within * max(one, other) for one, other in zip(*numbers, strict=True)
        )
    pattern = ""
    for line in shown(expected):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        elif line.endswith("..."):
            pattern += re.escape(line[:-3]) + ".*\n"
        else:
            pattern += re.escape(line) + "\n"
    return re.fullmatch(pattern, "\n".join(shown(printed)) + "\n") is not None


def page_of(folder: Path, setenv: Callable[[str, str], None]) -> Page:
    """Return a page to be run in a folder, in which nothing of the user's own is found."""
    (folder / "docs").symlink_to(ROOT / "docs")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        (folder / ".home").mkdir(exist_ok=True)
        setenv(name, str(folder / ".home"))
    setenv("NO_COLOR", "1")
    setenv("CRANNY_JOBS_AS_ROOT", "1")  # where tests run as root, which readers do not
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    return Page(folder)
