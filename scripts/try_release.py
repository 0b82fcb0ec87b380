"""Try a wheel as a user would: in an empty environment outside the checkout.

`python scripts/try_release.py dist/cranny-*.whl` installs it with its extras and runs `cranny demo`, the Python
example of the README, and a job on `cranny serve`; it exits with 1 at the first that fails.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# PyTorch is left to the machine: which of its builds is wanted depends on its GPUs.
EXTRAS = "exact,ray,repro,service"
READY_S = 300  # only ends a hang
JOB = """\
name: first
gpus: 1
command: [sh, -c, "echo trained on $CUDA_VISIBLE_DEVICES"]
"""


def main(wheel: Path) -> None:
    """Install and try everything in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="cranny-release-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        # Nothing of the checkout or of this user may be found by accident.
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "CRANNY", "XDG"))}
        env["CRANNY_JOBS_AS_ROOT"] = "1"  # in CI root tries it
        env |= {
            "HOME": name,
            "PATH": f"{python.parent}:{env.get('PATH', '')}",
            "VIRTUAL_ENV": str(folder / "venv"),
        }

        def run(*words: str | Path) -> str:
            say(f"$ {' '.join(Path(word).name if isinstance(word, Path) else word for word in words)}")
            done = subprocess.run(words, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, check=False)
            if done.returncode:
                sys.exit(f"{done.stdout}exit code {done.returncode}")
            return done.stdout

        constraints = CHECKOUT / "requirements" / "dev.lock"
        run(python, "-m", "pip", "install", "--quiet", "-c", constraints, f"{wheel.resolve()}[{EXTRAS}]")
        run(
            python, "-c", "from importlib.resources import files; files('cranny').joinpath('py.typed').read_text()"
        )
        say(run("cranny", "--version"))
        say(run("cranny", "demo"))
        if not (folder / "out" / "demo.html").is_file():
            sys.exit("cranny demo wrote no out/demo.html")
        (folder / "example.py").write_text(readme_example(), encoding="utf-8")
        say(run(python, folder / "example.py"))
        (folder / "job.yaml").write_text(JOB, encoding="utf-8")
        say("$ cranny serve --cluster 1x1x2 --port 0")
        with subprocess.Popen(
            ["cranny", "serve", "--cluster", "1x1x2", "--port", "0"],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
        ) as server:
            try:
                wait_until_ready(server, env)
                say(run("cranny", "submit", "job.yaml", "--wait"))
            finally:
                server.send_signal(signal.SIGINT)
                code = server.wait(READY_S)
        if code not in (0, 130):
            sys.exit(f"cranny serve ended with exit code {code}")
    say(f"{wheel.name} works")


def readme_example() -> str:
    """Return the first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if found is None:
        sys.exit("README.md has no Python example")
    return found[1]


def wait_until_ready(server: subprocess.Popen[bytes], env: dict[str, str]) -> None:
    """Return when the server answers; exit if it ends or does not."""
    until = time.monotonic() + READY_S
    while subprocess.run(["cranny", "nodes"], env=env, capture_output=True, check=False).returncode:
        if server.poll() is not None or time.monotonic() > until:
            sys.exit("cranny serve did not answer")
        time.sleep(0.5)


def say(text: str) -> None:
    """Print at once, between what the commands print themselves."""
    print(text.rstrip(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
