"""Executed by torchrun as a rank: redirects output to the log of the rank, then runs its command.

    python torchrun_rank.py LOG_DIR COMMAND...

It runs without cranny on its path, and imports nothing but the standard library.
"""

import os
import sys


def main(log_dir: str, argv: list[str]) -> None:
    """Redirect output to the log of this rank, and execute its command."""
    path = os.path.join(log_dir, f"rank-{os.environ['RANK']}.log")  # noqa: PTH118 - pathlib is slow to import
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    slots = os.environ.pop("CRANNY_GPUS").split(",")
    os.environ["CRANNY_GPU"] = slots[int(os.environ["LOCAL_RANK"])]
    os.environ["NODE_RANK"] = os.environ["GROUP_RANK"]
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - what the job asked for
    except OSError as error:
        sys.exit(f"cranny: cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
