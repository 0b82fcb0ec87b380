"""Executed by torchrun as a rank: redirects output to the pipe of the rank's log, then runs its command.

    python torchrun_rank.py PIPE COMMAND...

PIPE has {rank} in the place of its number.

It runs without cranny on its path, and imports nothing but the standard library.
"""

import os
import sys


def main(pipe: str, argv: list[str]) -> None:
    """Redirect output to the pipe of this rank, and execute its command."""
    path = pipe.replace("{rank}", os.environ["RANK"])
    log = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # fails at once if no log writer is left
    os.set_blocking(log, True)
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
