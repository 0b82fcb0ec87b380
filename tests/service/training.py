"""A training that does nothing but talk to the service: run as a process by tests, without PyTorch.

Every rank makes iterations, slower or faster by the type of its GPU, saves when it is asked to, and reports.
"""

import json
import os
import sys
import time
from pathlib import Path

from cranny.channel.control import CheckpointRequest, Control
from cranny.channel.report import KEPT, Record, Report, Resumed, Saved

REPORT_S = 0.1


def main(folder: Path, iteration_s: float, speeds: dict[str, float], batch: float) -> None:
    """Train until a signal ends the process; the state is in a file of the folder."""
    began_s = time.time()  # noqa: TID251 - as agents do
    channel, token = Path(os.environ["CRANNY_CHANNEL"]), os.environ["CRANNY_CHANNEL_TOKEN"]
    rank, ranks, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "CRANNY_ATTEMPT"))
    state = folder / f"state-{os.environ['CRANNY_JOB_ID']}"
    first = int(state.read_text()) if state.exists() else 0
    # As if all ranks waited for the slowest one in every iteration.
    own = [speeds.get(machine, 1.0) for machine in os.environ["CRANNY_MACHINES"].split(",")]
    samples = batch / ranks
    step, since, saved, answered = first, first, None, 0
    records: list[Record] = []
    reported_s = time.time()  # noqa: TID251
    resumed = Resumed(first, reported_s, reported_s - began_s)
    while True:
        time.sleep(iteration_s)
        step += 1
        now_s = time.time()  # noqa: TID251
        control = Control.read(channel)
        asked: CheckpointRequest | None = None if control is None else control.checkpoint
        if asked is not None and asked.number > answered:
            answered = asked.number
            if rank == 0:
                draft = state.with_suffix(".new")
                draft.write_text(str(step))
                draft.replace(state)
                with (folder / "saved").open("a") as file:
                    file.write(f"{os.environ['CRANNY_JOB_ID']} {attempt} {ranks} {step} {asked.reason}\n")
            saved = Saved(step, now_s, 0.0, asked.number)
        elif now_s < reported_s + REPORT_S:
            continue
        count, wall_s = step - since, now_s - reported_s
        compute_s = min(wall_s, count * samples / (own[rank] * 1000.0))
        if count:
            number = records[-1].number + 1 if records else 1
            made = Record(number, now_s, step, count, wall_s, compute_s=compute_s, samples=count * samples)
            records = [*records, made][-KEPT:]
        since, reported_s = step, now_s
        Report(rank, tuple(records), saved, resumed).write(channel, token)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3]), float(sys.argv[4]))
