"""What cranny writes into a comment of a Slurm job: the mark, the node of each rank, and why it is there.

    cranny job=job-7 launch=5f2c09d1a3b4 master=10.0.0.3 ranks=node2*2,node3*2 | titan: fills the gaps of ...

Users read it with `scontrol show job`, and `cranny-launch` inside the job takes the ranks from it. It imports only
the standard library, since every rank of a job loads it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

MARK = "cranny"
MOST_TEXT = 1_000  # characters of the explanation
MOST_RANKS = 1_000_000
_OURS = frozenset({"job", "launch", "master", "ranks", "after"})
_WORD = re.compile(r"([a-z]+)=(\S+)")


class PlacedComment(NamedTuple):
    """The parts of a comment; those that it lacks are empty."""

    job: str = ""  # cranny's own id of it
    launch: str = ""  # the attempt that this belongs to
    master: str = ""  # the address of the node of rank 0
    nodes: tuple[str, ...] = ()  # of each rank
    after_s: float = 0.0  # the user's own --begin, before which it is not placed
    text: str = ""
    hints: tuple[str, ...] = ()  # what the user says of the job, if this is the user's own comment: `model=vgg16`

    def write(self) -> str:
        """Return the comment."""
        words = [MARK, *self.hints]
        words += [f"job={self.job}"] if self.job else []
        words += [f"launch={self.launch}"] if self.launch else []
        words += [f"after={self.after_s:.0f}"] if self.after_s else []
        words += [f"master={self.master}"] if self.master else []
        words += [f"ranks={folded_ranks(self.nodes)}"] if self.nodes else []
        text = " ".join(self.text.split())[:MOST_TEXT]
        return " ".join(words) + (f" | {text}" if text else "")

    @classmethod
    def read(cls, comment: str) -> "PlacedComment | None":
        """Read a comment; None if it does not begin with the mark."""
        head, _, text = comment.partition(" | ")
        mark, *words = head.split()[:20] if head.strip() else [""]
        if mark != MARK:
            return None
        found = {match[1]: match[2] for word in words if (match := _WORD.fullmatch(word))}
        after = found.get("after", "0")
        return cls(
            found.get("job", ""),
            found.get("launch", ""),
            found.get("master", ""),
            ranks_of(found.get("ranks", "")),
            float(after) if re.fullmatch(r"[0-9]{1,12}", after) else 0.0,
            text.strip(),
            tuple(f"{name}={value}" for name, value in found.items() if name not in _OURS),
        )


def folded_ranks(nodes: Sequence[str]) -> str:
    """Write the nodes of ranks in order; `node2*3` stands for three ranks in a row."""
    runs: list[tuple[str, int]] = []
    for node in nodes:
        if runs and runs[-1][0] == node:
            runs[-1] = node, runs[-1][1] + 1
        else:
            runs.append((node, 1))
    return ",".join(node if times == 1 else f"{node}*{times}" for node, times in runs)


def ranks_of(text: str) -> tuple[str, ...]:
    """Return the nodes of ranks that `folded_ranks` has written; none if the text is something else."""
    nodes: list[str] = []
    for run in text.split(",") if text else ():
        found = re.fullmatch(r"([^\s,*]+)(?:\*([0-9]{1,7}))?", run)
        if found is None or len(nodes) + int(found[2] or 1) > MOST_RANKS:
            return ()
        nodes += [found[1]] * int(found[2] or 1)
    return tuple(nodes)
