"""A stream of jobs through cranny and a real Slurm, under faults.

    python -m tests.slurm.stream --jobs 200 --kills 20

Jobs of 1 to 32 GPUs are submitted with sbatch; a tenth is cancelled, and others that cranny does not place come in
between. Half-way a node loses power and returns, another one is added, the controller is restarted, and cranny is
killed again and again. What is checked is seen from outside: each task takes a lock for each of its GPUs and
writes down when it starts and ends.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from cranny.backends.slurm.slurm_nodes import read_nodes
from cranny.channel.placed_comment import PlacedComment
from cranny.model.hostlist import expand
from tests.service.accounts import PLAIN
from tests.slurm.real_slurm import RealSlurm, until

LUA = Path(__file__).parents[2] / "deploy" / "slurm" / "job_submit.lua"
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 2), (4, 4), (4, 8))  # nodes, GPUs of each
PATIENCE_S = 600.0
KILL_EVERY_S = 6.0  # on average; until then it has started and done something
TASK = """#!/bin/bash
for gpu in ${{CUDA_VISIBLE_DEVICES//,/ }}; do
  exec {{lock}}> {folder}/locks/$SLURMD_NODENAME-$gpu
  flock -n $lock || echo "$SLURM_JOB_ID $SLURMD_NODENAME $gpu" >> {folder}/conflicts
done
echo "$SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" >> {folder}/starts
sleep $1
echo "$SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" >> {folder}/ends
"""


@dataclass
class StreamResult:
    """What was seen."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Served:
    """`cranny serve --backend slurm` as a process that can be killed and started again."""

    def __init__(
        self,
        slurm: RealSlurm,
        folder: Path,
        interval_s: float = 0.3,
        first: Path | None = None,
        command: Sequence[str] = (sys.executable, "-m", "cranny.cli"),
        options: Sequence[str] = ("--policy", "cranny"),
    ) -> None:
        """Ask Slurm so often; commands are looked for in the folder `first` before others."""
        self._command, self._options = command, options
        self._env = {**slurm.env, "XDG_STATE_HOME": str(folder / "xdg")}
        self._env["PATH"] = self._env["PATH"] if first is None else f"{first}:{self._env['PATH']}"
        self._interval_s = interval_s
        self._folder = folder
        self._log = folder / "cranny.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = (
            "serve",
            "--backend",
            "slurm",
            "--slurm-interval",
            f"{self._interval_s}",
            "--port",
            "0",
        )
        argv = (*self._command, *words, *self._options, "--folder", str(self._folder / "cranny"))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, env=self._env, stdout=log, stderr=log, cwd="/")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def get(self, path: str) -> Any:
        """Ask the service; None while it does not answer."""
        with contextlib.suppress(ValueError):
            text = self.ask(f"api/v1/{path}")
            return None if text is None else json.loads(text)
        return None

    def submit(self, user: str, job: Mapping[str, object]) -> str:
        """Submit a job of a user to the service, and return its id."""
        made = json.loads(self.ask("api/v1/tokens", {"user": user, "role": "user"}) or "null")
        return str(json.loads(self.ask("api/v1/jobs", job, made["token"]) or "null")["id"])

    def ask(self, path: str, body: object = None, token: str | None = None) -> str | None:
        """Return what the service answers, to what is posted if there is something; None while it does not."""
        with contextlib.suppress(OSError, ValueError, httpx.HTTPError):
            known = json.loads((self._folder / "cranny" / "server.json").read_text())
            headers = {"Authorization": f"Bearer {token or known['token']}"}
            method = "GET" if body is None else "POST"
            url = f"{known['url']}/{path}"
            answer = httpx.request(method, url, headers=headers, json=body, timeout=30, verify=PLAIN)
            return answer.text if answer.is_success else None
        return None

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class Stream:
    """The jobs of a stream, and the faults that they meet."""

    def __init__(self, slurm: RealSlurm, jobs: int, kills: int, seed: int, sleep_s: float) -> None:
        self._slurm, self._jobs, self._kills, self._sleep_s = slurm, jobs, kills, sleep_s
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self.folder = Path(tempfile.mkdtemp(prefix="cranny-stream-"))
        (self.folder / "locks").mkdir()
        task = self.folder / "task.sh"
        task.write_text(TASK.format(folder=self.folder))
        task.chmod(0o755)
        self.served = Served(slurm, self.folder)
        self.placed: dict[str, tuple[int, int]] = {}  # by id: nodes and GPUs of each
        self.others: set[str] = set()
        self.cancelled: set[str] = set()
        self.counts: Counter[str] = Counter()
        self._lost = "node2"

    def submit(self, *, ours: bool) -> None:
        nodes, gpus = self._random.choice(SHAPES if ours else SHAPES[:3])
        seconds = self._random.uniform(0.2, 1.0) * self._sleep_s
        run = f"{self.folder}/task.sh {seconds:.2f}"
        step = f"exec srun --ntasks={nodes} --ntasks-per-node=1 {run}" if nodes > 1 else f"exec {run}"
        mark = ("--comment=cranny",) if ours else ()
        shape = (f"-N{nodes}", f"--gpus-per-node={gpus}", "--ntasks-per-node=1", "--time=10", "--requeue")
        output = f"--output={self.folder}/printed-%j"
        job = self._slurm.sbatch(*mark, *shape, output, script=f"#!/bin/sh\n{step}\n")
        if ours:
            self.placed[job] = nodes, gpus
        else:
            self.others.add(job)

    def cancel(self) -> None:
        job = self._random.choice(sorted(self.placed, key=int)[-8:])
        self._slurm.call("scancel", job, check=False)
        self.cancelled.add(job)

    def run(self) -> StreamResult:
        """Submit everything, let faults happen, wait for the end of all jobs, and check."""
        begun = time.monotonic()
        self.served.start()
        until(lambda: self.served.get("cluster") is not None, "cranny")
        gap_s = KILL_EVERY_S * (self._kills + 1) / self._jobs
        faults = self._faults()
        for number in range(self._jobs):
            self.submit(ours=True)
            if number % 8 == 3:
                self.submit(ours=False)
            if number % 10 == 9:
                self.cancel()
            while faults and number >= faults[0][0]:
                _, name = faults.pop(0)
                self.counts[name] += 1
                {"kill": self._kill, "node": self._lose_node, "controller": self._restart_controller}[name]()
            time.sleep(self._random.uniform(0.0, 2 * gap_s))
        until(self._all_over, "the end of all jobs", PATIENCE_S)
        result = self._checked()
        result.seconds = time.monotonic() - begun
        self.served.kill(signal.SIGTERM)
        return result

    def remove(self) -> None:
        self.served.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _faults(self) -> list[tuple[int, str]]:
        kills = [(round((each + 1) * self._jobs / (self._kills + 1)), "kill") for each in range(self._kills)]
        return sorted([*kills, (self._jobs // 2, "node"), (self._jobs * 2 // 3, "controller")])

    def _kill(self) -> None:
        self.served.kill()
        time.sleep(self._random.uniform(0.0, 0.5))
        self.served.start()

    def _lose_node(self) -> None:
        """Let a node lose power on which a job runs that cranny has placed."""

        def used() -> list[str]:
            running = self._slurm.call("squeue", "-h", "-t", "R", "-o", "%A %N").splitlines()
            return [line.split()[1] for line in running if line.split()[0] in self.placed]

        while not used():
            if not self._slurm.call("squeue", "-h", "-t", "PD", "-o", "%A").split():
                self.submit(ours=True)
            time.sleep(0.2)
        self._lost = expand((used() or ["node2"])[-1])[0]
        self._slurm.lose_node(self._lost)

    def _restart_controller(self) -> None:
        """Restart it with one node more; the one that was lost returns as well."""
        self._slurm.add_node("node9")
        until(
            lambda: not self._slurm.call("squeue", "-h", "-t", "CG", "-o", "%A").split(), "no job that just ends"
        )
        self._slurm.stop_controller()
        time.sleep(1.0)
        self._slurm.start_controller()
        self._slurm.start_node("node9")
        self._slurm.start_node(self._lost)
        # Slurm 22.05 that is reconfigured before nodes have registered starts jobs there without GPUs, or takes
        # those of jobs that have ended for used.
        until(self._all_registered, "registered nodes")
        self._slurm.call("scontrol", "reconfigure")  # the other nodes must know the new one, to reach it
        self._slurm.call("scontrol", "update", f"NodeName={self._lost}", "State=RESUME", check=False)

    def _all_registered(self) -> bool:
        printed = self._slurm.call("sinfo", "--json", check=False)
        nodes = read_nodes(json.loads(printed)) if printed else {}
        return len(nodes) == len(self._slurm.nodes) and all(node.registered for node in nodes.values())

    def _all_over(self) -> bool:
        if not self.served.running():
            raise RuntimeError(f"cranny has ended: {self.served.log()[-2000:]}")
        time.sleep(0.5)
        return not self._slurm.call("squeue", "-h", "-o", "%A", check=False).split()

    def _checked(self) -> StreamResult:
        found = StreamResult(counts=self.counts)
        states = self._states()
        starts, ends = (Counter(_lines(self.folder / name)) for name in ("starts", "ends"))
        found.violations += [f"GPU given twice: {line}" for line in _lines(self.folder / "conflicts")]
        found.violations += [f"ran twice: {line}" for line, times in (starts + ends).items() if times > 2]
        found.violations += [f"started twice: {line}" for line, times in starts.items() if times > 1]
        excused = self._released_before_restart()
        bare = {line.split()[0] for line in starts if len(line.split()) < 4}
        found.violations += [f"job {job} started without GPUs" for job in bare & set(self.placed) - excused]
        done: dict[str, int] = {}  # tasks of a job that ended, since Slurm put it back last
        last = dict(sorted((line.split()[0], int(line.split()[1])) for line in starts))
        for line in ends:
            job, restart = line.split()[:2]
            done[job] = done.get(job, 0) + (int(restart) == last[job])
        for job, (nodes, _) in self.placed.items():
            state, ran_on, comment = states.get(job, ("gone", "", ""))
            self.counts[state] += 1
            if job not in self.cancelled and (state != "COMPLETED" or done.get(job, 0) != nodes):
                printed = " ".join(_lines(self.folder / f"printed-{job}")[-3:])
                if job in excused and "Invalid generic resource" in printed:
                    self.counts["failed by Slurm"] += 1
                    continue
                found.violations.append(
                    f"job {job} is {state} after {done.get(job, 0)} of {nodes} tasks have ended: {printed}"
                )
            placed = PlacedComment.read(comment)
            if state == "COMPLETED" and (placed is None or set(placed.nodes) != set(expand(ran_on))):
                found.violations.append(f"job {job} ran on {ran_on}, but was placed by {comment!r}")
        found.violations += [
            f"job {job} of others: {states[job][0]}" for job in self.others if states[job][0] != "COMPLETED"
        ]
        self.counts["restarts of jobs"] = sum(line.split()[1] != "0" for line in starts)
        self.counts["taken back"] = self.served.log().count("was not started within")
        found.violations += self._state_violations()
        found.violations += self._gpu_violations(list(starts))
        return found

    def _released_before_restart(self) -> set[str]:
        """Return the jobs that the controller had from cranny when it was restarted.

        Slurm 22.05 may start them on nodes that have not told it of their GPUs since, and without any.
        """
        log = (self._slurm.folder / "log" / "slurmctld.log").read_text(errors="replace")
        later = log.rpartition("Running as primary controller")[2]
        return {job for job in self.placed if not re.search(rf"setting req_nodes .* for JobId={job}\n", later)}

    def _gpu_violations(self, starts: list[str]) -> list[str]:
        """Compare the GPUs that cranny has learned from Slurm with those that the tasks of some start saw.

        A job whose node was lost may have been started once more than its tasks came to say what they saw.
        """
        seen: dict[tuple[str, str], list[int]] = {}  # by job and how often it was started before
        for job, restart, _, *gpus in map(str.split, starts):
            seen.setdefault((job, restart), []).extend(int(gpu) for each in gpus for gpu in each.split(","))
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/cranny/log.db?mode=ro", uri=True)) as log:
            rows = log.execute(
                "SELECT kind, job, body FROM cranny_events WHERE kind IN ('submitted', 'given')"
            ).fetchall()
        external = {job: json.loads(body)["external"]["id"] for kind, job, body in rows if kind == "submitted"}
        known = [(external[job], sorted(json.loads(body)["gpus"])) for kind, job, body in rows if kind == "given"]
        self.counts["GPUs known"] = len(known)
        found = []
        for job, (nodes, each) in self.placed.items():
            whole = [sorted(gpus) for (own, _), gpus in seen.items() if own == job and len(gpus) == nodes * each]
            begun = 1 + max((int(restart) for own, restart in seen if own == job), default=0)
            other = [gpus for own, gpus in known if own == job and gpus not in whole]
            if len(other) > begun - len(whole):
                found.append(f"job {job} has other GPUs than {other}: {whole}")
        return found

    def _states(self) -> dict[str, tuple[str, str, str]]:
        """Return state, nodes and AdminComment of all jobs, as Slurm has them."""
        jobs = json.loads(self._slurm.call("squeue", "--json", "-t", "all"))["jobs"]
        return {str(job["job_id"]): (job["job_state"], job["nodes"], job["admin_comment"]) for job in jobs}

    def _state_violations(self) -> list[str]:
        """Wait until cranny knows of all ends, and compare its state with Slurm's."""

        def settled() -> bool:
            cluster = self.served.get("cluster")
            counts = cluster.get("counts", {}) if isinstance(cluster, dict) else {"waiting": 1}
            return not any(counts.get(each) for each in ("waiting", "starting", "running", "stopping"))

        def all_free() -> bool:  # jobs of others leave with the next reading
            answer = self.served.get("nodes")
            return isinstance(answer, dict) and all(node["free"] == node["gpus"] for node in answer["nodes"])

        with contextlib.suppress(TimeoutError):
            until(lambda: settled() and all_free(), "cranny to know of all ends", 180.0)
        answer = self.served.get("nodes")
        nodes = answer["nodes"] if isinstance(answer, dict) else None
        if not settled() or nodes is None:
            known = [self.served.get("cluster"), self.served.get("jobs?limit=20"), self.served.log()[-2000:]]
            return [f"cranny has open jobs: {known}"]
        busy = [f"{node['name']}: {node}" for node in nodes if node["free"] != node["gpus"]]
        names = {node["name"] for node in nodes}
        missing = [f"cranny lacks {name}" for name in self._slurm.nodes if name not in names]
        return [f"not free at the end: {each}" for each in busy] + missing


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def run_stream(jobs: int, kills: int, seed: int, sleep_s: float = 2.0) -> StreamResult:
    """Start a Slurm, run a stream through it, and say what was seen."""
    # An srun gives up, and its job fails, once the controller has been away for the message timeout.
    with RealSlurm(lua=LUA, min_job_age_s=3600, message_timeout_s=20, slurmd_timeout_s=30) as slurm:
        stream = Stream(slurm, jobs, kills, seed, sleep_s)
        kept, held = os.environ.get("KEEP_STREAM"), False
        try:
            result = stream.run()
            held = not result.violations
            return result
        finally:
            if kept and not held:
                shutil.copytree(stream.folder, kept, dirs_exist_ok=True)
                shutil.copytree(slurm.folder / "log", f"{kept}/slurm", dirs_exist_ok=True)
            stream.remove()


def main() -> int:
    """Run a stream of any size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    result = run_stream(asked.jobs, asked.kills, asked.seed)
    sys.stdout.write(f"{asked.jobs} jobs in {result.seconds:.0f} s: {dict(result.counts)}\n")
    sys.stdout.write("".join(f"violated: {each}\n" for each in result.violations) or "everything held\n")
    return bool(result.violations)


if __name__ == "__main__":
    sys.exit(main())
