"""A job that reports what could be, but is not: run as a process by tests.

    python liar.py FILE EVERY_S EXCHANGE_S LIES

Each of the LIES, `[[iteration_s, gradient_bytes], ...]`, is told by as many records as the service measures
computing over. FILE gets a line for every lie that was told.
"""

import json
import os
import sys
import time
from pathlib import Path

from cranny.channel.report import Record, Report

RECORDS = 8  # over so many, computing is measured


def main(file: Path, every_s: float, exchange_s: float, lies: list[tuple[float, float]]) -> None:
    """Tell all lies in turn."""
    folder, token = Path(os.environ["CRANNY_CHANNEL"]), os.environ["CRANNY_CHANNEL_TOKEN"]
    number, began_s, spent_s = 0, time.monotonic(), 0.0
    while os.environ["RANK"] == "0" and number < RECORDS * len(lies):
        iteration_s, gradient_bytes = lies[number // RECORDS]
        time.sleep(every_s)
        while spent_s + RECORDS * iteration_s > time.monotonic() - began_s:  # more would not be believed
            time.sleep(0.01)
        records = []
        for _ in range(RECORDS):
            number += 1
            records.append(
                Record(
                    number,
                    time.time(),  # noqa: TID251 - the clock of reports
                    step=number,
                    iterations=1,
                    wall_s=iteration_s,
                    compute_s=iteration_s - exchange_s,
                    comm_s=exchange_s,
                    comm_start_s=iteration_s - exchange_s,
                    comm_end_s=iteration_s,
                    gradient_bytes=gradient_bytes,
                    paced=True,
                    period_s=iteration_s,
                )
            )
        spent_s += RECORDS * iteration_s
        Report(0, tuple(records)).write(folder, token)
        with file.open("a") as out:
            out.write(f"{iteration_s}\n")
    while True:
        time.sleep(60.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4]))
