"""A stand-in for the service: the pages, and canned answers in the shapes of the API."""

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from tests.service.fake_measurements import fake_measurements

from cranny.service.dashboard import dashboard

GPUS = 8
EVIL = '<img src=x onerror="window.hacked=1">'
API = "/api/v1"
OVER = ("done", "failed", "cancelled")


class Fake:
    """A cluster with jobs that can be changed while browsers watch."""

    def __init__(self, machines: int, *, jobs: bool = True, token: str | None = None, seed: int = 1) -> None:
        self.rng = random.Random(seed)  # noqa: S311  (made-up jobs need no secrets)
        self.now_s = time.clock_gettime(time.CLOCK_REALTIME)
        self.token = token
        self.role = "admin"
        self.jobs: dict[str, dict[str, Any]] = {}
        self.slots: list[list[str | None]] = [[None] * GPUS for _ in range(machines)]
        self.states = ["up"] * machines
        self.use = [0.0] * machines
        self.events: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.last_event_ids: list[str | None] = []
        self.mode = "run"
        self.movable = True
        self.broken = ""
        self.also_at: tuple[str, ...] = ()
        self.drop = 0
        self.stopping = False
        per_rack = 4 if machines <= 16 else 8
        self.racks = [f"rack{machine // per_rack}" for machine in range(machines)]
        self.names = [f"{rack}-machine{machine % per_rack}" for machine, rack in enumerate(self.racks)]
        if jobs and machines:
            self.fill_up()

    def job(self, gpus: int, **more: Any) -> dict[str, Any]:
        number = len(self.jobs) + 1
        users, models = ("ann", "bob", "chi"), ("resnet50", "bert-base", "vgg16")
        made = {
            "id": f"job-{number}",
            "name": f"train-{number}",
            "user": users[number % 3],
            "queue": "research",
            "status": "waiting",
            "gpus": gpus,
            "model": models[number % 3],
            "collective": "ring",
            "tp": 1,
            "pp": 1,
            "priority": 0,
            "submitted_s": self.now_s - 1800,
            "started_s": None,
            "ended_s": None,
            "duration_s": 5400.0,
            "deadline_s": None,
            "attempt": 1,
            "retries_left": 0,
            "machines": [],
            "reason": "",
            "reason_kind": "",
            "predicted_start_s": None,
            "expected_end_s": None,
            "exit_code": None,
            "earlier": [],
            "placement": None,
            **more,
        }
        self.jobs[str(made["id"])] = made
        return made

    def fill_up(self) -> None:
        """Run jobs on about three quarters of the GPUs, let some wait, and let some be over."""
        sizes = (1, 2, 4, 4, 8, 8, 16, 32)
        while sum(slot is not None for row in self.slots for slot in row) < 0.72 * GPUS * len(self.slots):
            job = self.job(self.rng.choice(sizes), submitted_s=self.now_s - self.rng.uniform(60, 9000))
            self.place(job, job["submitted_s"] + self.rng.uniform(0, 300))
        for number in range(6):
            predicted = self.now_s + 240.0 * (number + 1) if number != 4 else None
            self.job(
                (16, 8, 64, 4, 128, 2)[number],
                submitted_s=self.now_s - 900 + 60 * number,
                predicted_start_s=predicted,
                reason=f"{(16, 8, 64, 4, 128, 2)[number]} GPUs are asked for, 5 are free; job-1 ends next.",
                reason_kind="too-few-gpus",
            )
        for number in range(min(400, 6 * len(self.slots))):
            ended, machine = self.now_s - self.rng.uniform(30, 7000), self.rng.randrange(len(self.slots))
            started = ended - self.rng.uniform(60, 2400)
            status = ("done", "done", "done", "failed", "cancelled")[number % 5]
            self.job(4, status=status, started_s=started, ended_s=ended, machines=[self.names[machine]])
        if len(self.slots) >= 8:
            self.states[5], self.states[6] = "drained", "failed"
            for machine in (5, 6):
                self.slots[machine] = [None] * GPUS

    def place(self, job: dict[str, Any], started_s: float) -> bool:
        """Give a job the first free GPUs, fewest machines first come."""
        free = self.free()
        if job["gpus"] >= GPUS and self.rng.random() < 0.6:  # whole machines for some, so that fragments stay
            idle = [spot for spot in free if self.slots[spot[0]].count(None) == GPUS]
            free = idle if len(idle) >= job["gpus"] else free
        if len(free) < job["gpus"]:
            return False
        spots = free[: job["gpus"]]
        for machine, gpu in spots:
            self.slots[machine][gpu] = job["id"]
        machines = sorted({machine for machine, _ in spots})
        for machine in machines:
            self.use[machine] += self.rng.uniform(2, 45) if len(machines) > 1 else 0.0
        job |= {
            "status": "running",
            "started_s": started_s,
            "expected_end_s": started_s + job["duration_s"],
            "machines": [self.names[machine] for machine in machines],
            "placement": self.placement(spots),
        }
        return True

    def free(self) -> list[tuple[int, int]]:
        spots = [(machine, gpu) for machine in range(len(self.slots)) for gpu in range(GPUS)]
        return [(m, gpu) for m, gpu in spots if self.slots[m][gpu] is None and self.states[m] == "up"]

    def placement(self, spots: list[tuple[int, int]]) -> dict[str, Any]:
        return {
            "machines": [machine for machine, _ in spots],
            "names": [self.names[machine] for machine, _ in spots],
            "gpus": [gpu for _, gpu in spots],
            "spare": [],
            "server": None,
        }

    def happens(self, kind: str, **more: Any) -> None:
        """Tell all who listen."""
        self.events.append({"seq": len(self.events) + 1, "at_s": self.now_s, "kind": kind, **more})

    def submit(self, spec: dict[str, Any], user: str = "ann") -> dict[str, Any]:
        now = time.clock_gettime(time.CLOCK_REALTIME)
        job = self.job(spec["gpus"], name=spec.get("name", "made"), user=user, submitted_s=now)
        self.happens("submitted", job=job["id"], gpus=job["gpus"], name=job["name"], user=user)
        if self.place(job, now):
            self.happens("placed", job=job["id"], attempt=1, machines=job["machines"])
        else:
            job |= {"reason": "Too few GPUs are free.", "reason_kind": "too-few-gpus"}
        return job

    def release(self, job: dict[str, Any], status: str) -> None:
        over: dict[str, Any] = {"expected_end_s": None, "placement": None}
        job |= {"status": status, "ended_s": time.clock_gettime(time.CLOCK_REALTIME), **over}
        self.slots = [[None if slot == job["id"] else slot for slot in row] for row in self.slots]
        self.happens("cancelled" if status == "cancelled" else "ended", job=job["id"], status=status, by="ann")

    def node(self, machine: int) -> dict[str, Any]:
        slots = self.slots[machine]
        return {
            "machine": machine,
            "name": self.names[machine],
            "rack": self.racks[machine],
            "rack_index": 0,
            "gpus": GPUS,
            "gpu_type": "",
            "free": sum(slot is None for slot in slots),
            "slots": slots,
            "state": self.states[machine],
            "uplink_gbps": 100.0,
            "uplink_use_gbps": min(self.use[machine], 99.0),
        }

    def cluster(self) -> dict[str, Any]:
        held = sum(slot is not None for row in self.slots for slot in row)
        used = [row for row in self.slots if any(slot is not None for slot in row)]
        names = ("waiting", "starting", "running", "stopping", *OVER)
        counts = {name: sum(job["status"] == name for job in self.jobs.values()) for name in names}
        free = GPUS * len(self.slots) - held
        policy = {"name": "titan", "order": "fifo", "period_s": 0, "options": {}, "about": "", "paper": ""}
        return {
            "name": "lab",
            "description": f"{len(set(self.racks))} racks, {len(self.slots)} machines of 8 GPUs",
            "gpus": GPUS * len(self.slots),
            "free_gpus": free,
            "held_gpus": held,
            "used_machines": len(used),
            "fragmentation": sum(row.count(None) for row in used) / max(1, GPUS * len(used)),
            "mode": self.mode,
            "policy": policy,
            "counts": counts,
            "largest_startable_gpus": free,
            "seq": len(self.events),
            "now_s": time.clock_gettime(time.CLOCK_REALTIME),
        }

    def history(self, minutes: int) -> list[dict[str, Any]]:
        now, made, level, rng = time.clock_gettime(time.CLOCK_REALTIME), [], 0.6, random.Random(3)  # noqa: S311
        for number in range(120 if self.jobs else 0):
            level = min(0.98, max(0.2, level + rng.uniform(-0.06, 0.065)))
            gpus = GPUS * len(self.slots)
            made.append(
                {
                    "at_s": now - minutes * 60 * (1 - number / 120),
                    "held_gpus": int(gpus * level),
                    "used_machines": len(self.slots),
                    "fragmentation": 0.3 * (1 - level) + 0.02,
                    "waiting": int(12 * level) % 9,
                    "running": int(3 + 20 * level),
                }
            )
        return made

    def explain(self, job: dict[str, Any]) -> dict[str, Any]:
        kind = "placed" if job["machines"] else "over" if job["status"] in OVER else "too-few-gpus"
        reason = job["reason"] or "It runs on the machines with the fewest free GPUs that hold it."
        return {
            "job": job["id"],
            "status": job["status"],
            "kind": kind,
            "reason": reason,
            "evidence": ["5 GPUs are free, on 3 machines.", "job-1 holds 8 GPUs and is expected to end in 4 min."],
            "next_step": "Ask for 4 GPUs: they would start now." if kind == "too-few-gpus" else "",
            "facts": {"price": self.price(job["machines"])} if len(job["machines"]) > 1 else {},
            "predicted_start_s": job["predicted_start_s"],
        }

    def price(self, machines: list[str]) -> dict[str, Any]:
        terms = {"own": 310.4, "others": 45.0, "types": 60.0, "opened": 120.0, "longer": 0.0, "holes": -5.4}
        chosen = {"terms_gpu_s": terms, "why": {"own": "crosses 2 racks"}, "gpus_on": dict.fromkeys(machines, 1)}
        after = {**chosen, "terms_gpu_s": {**terms, "opened": 240.0}, "more_gpu_s": 120.0, "decided_by": "opened"}
        return {**chosen, "next_best": [after]}

    def moves(self, price: float) -> dict[str, Any]:
        running = [job for job in self.jobs.values() if job["status"] == "running"] if self.movable else []
        groups = []
        for number, job in enumerate(running[:3]):
            target = {self.names[-1]: job["gpus"]}
            move = {"job": job["id"], "gpus": job["gpus"], "from": dict.fromkeys(job["machines"], 1), "to": target}
            moves = [{**move, "cost_gpu_s": 60.0 * job["gpus"]}]
            if number == 1:
                moves.append({**moves[0], "job": "job-9"})
            groups.append(
                {
                    "purpose": ("empty", "gather", "start")[number],
                    "starts": (None, None, "job-12")[number],
                    "moves": moves,
                    "gain": {"total_gpu_s": 7200.0 * (number + 1)},
                    "cost_gpu_s": sum(each["cost_gpu_s"] for each in moves),
                    "net_gpu_s": 7200.0,
                    "emptied": [],
                    "saved_money": price,
                }
            )
        return {
            "groups": groups,
            "moves": sum(len(group["moves"]) for group in groups),
            "emptied": self.names[:2] if groups else [],
            "gain_gpu_s": sum(group["gain"]["total_gpu_s"] for group in groups),
            "cost_gpu_s": sum(group["cost_gpu_s"] for group in groups),
            "net_gpu_s": 7200.0,
            "saved_money": 1234.5 * price,
            "saved_money_per_hour": 2.0 * GPUS * price,
            "price_per_gpu_hour": price,
        }

    def traffic(self, job: dict[str, Any]) -> dict[str, Any]:
        ranks = job["placement"]["names"]
        pairs = [{"a": rank, "b": (rank + 1) % len(ranks), "bytes": 2e8} for rank in range(len(ranks))]
        sums: dict[tuple[str, str], float] = {}
        for pair in pairs if len(ranks) > 1 else []:
            ends = (ranks[int(pair["a"])], ranks[int(pair["b"])])
            if ends[0] != ends[1]:
                sums[ends] = sums.get(ends, 0.0) + float(pair["bytes"])
        circles = [
            {
                "link": 3,
                "name": "uplink of rack0",
                "gbps": 100.0,
                "perimeter_s": 0.51,
                "score": 1.0,
                "jobs": [
                    {
                        "job": job["id"],
                        "iteration_s": 0.255,
                        "shift_s": 0.0,
                        "arcs": [[0.141, 0.255, 80.0]],
                        "asked_s": 0.255,
                        "paced": True,
                        "measured_s": 0.2551,
                    },
                    {"job": "job-1", "iteration_s": 0.51, "shift_s": 0.02, "arcs": [[0.0, 0.1, 60.0]]},
                ],
            }
        ]
        return {
            "job": job["id"],
            "ranks": ranks,
            "pairs": pairs if len(ranks) > 1 else [],
            "machines": [{"a": one, "b": other, "bytes": sent} for (one, other), sent in sums.items()],
            "cross_machine_bytes": sum(sums.values()),
            "links": [{"link": 3, "name": "uplink of rack0", "gbps": 9}],
            **({"circles": circles} if sums else {}),
        }


def problem(status: int, title: str, detail: str, errors: list[dict[str, str]] | None = None) -> JSONResponse:
    said = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    content = said if errors is None else {**said, "errors": errors}
    return JSONResponse(content, status, media_type="application/problem+json")


def app_of(fake: Fake) -> FastAPI:
    """Return the pages and the canned API of a made-up cluster."""
    app = FastAPI()
    app.state.also_at, app.state.oidc = fake.also_at, None
    app.include_router(dashboard.router)

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        if request.url.path.startswith(API) and request.url.path != f"{API}/session":
            if fake.broken:
                return problem(503, "Unavailable", fake.broken)
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if fake.token is not None and fake.token != given:
                return problem(401, "Unauthorized", "This needs a token.")
        answer: Response = await call_next(request)
        return answer

    _reads(app, fake)
    _writes(app, fake)
    _job_reads(app, fake)
    return app


def _reads(app: FastAPI, fake: Fake) -> None:
    @app.get(f"{API}/me")
    def me() -> Any:
        return {"user": "ann", "role": fake.role}

    @app.get(f"{API}/cluster")
    def cluster() -> Any:
        return fake.cluster()

    @app.get(f"{API}/history")
    def history(minutes: int = 60) -> Any:
        return {"gpus": GPUS * len(fake.slots), "points": fake.history(minutes)}

    @app.get(f"{API}/links")
    def links() -> Any:
        made = [
            {"link": number, "name": f"uplink of {rack}", "tier": 1, "node": rack, "gbps": 400.0, "jobs": 2}
            for number, rack in enumerate(dict.fromkeys(fake.racks))
        ]
        return {"links": [{**link, "use_gbps": 37.0 * (number % 10)} for number, link in enumerate(made)]}

    @app.get(f"{API}/moves")
    def moves(price_per_gpu_hour: float = 1.0) -> Any:
        return fake.moves(price_per_gpu_hour)

    @app.get(f"{API}/nodes")
    def nodes(limit: int = 1000, after: int = -1) -> Any:
        last = min(after + 1 + limit, len(fake.slots))
        listed = [fake.node(machine) for machine in range(after + 1, last)]
        return {"nodes": listed, "next": last - 1 if last < len(fake.slots) else None}

    @app.get(f"{API}/models")
    def models() -> Any:
        return {"models": ["bert-base", "resnet50", "vgg16"], "collectives": ["halving-doubling", "ring"]}

    @app.get(f"{API}/recommendations")
    def recommendations() -> Any:
        saved = {"jobs": 12, "machines": 3, "idle_machines": 3, "cross_bytes": 1e12, "wait_s": 5000}
        made = {
            "seq": 1,
            "at_s": fake.now_s,
            "job": "job-1",
            "placement": None,
            "text": "Put job-1 on rack0-machine0.",
        }
        return {"recommendations": [made], "saved": saved}

    @app.get(f"{API}/events")
    async def events(request: Request, after: int = 0, limit: int = 1000, *, follow: bool = True) -> Response:
        if not follow:
            return Response("".join(_frame(event) for event in fake.events[after : after + limit]))
        given = request.headers.get("last-event-id")
        fake.last_event_ids.append(given)
        return StreamingResponse(_stream(fake, int(given or len(fake.events))), media_type="text/event-stream")


def _frame(event: dict[str, Any]) -> str:
    return f"id: {event['seq']}\nevent: {event['kind']}\ndata: {json.dumps(event)}\n\n"


async def _stream(fake: Fake, sent: int) -> AsyncIterator[str]:
    cut = fake.drop
    yield ": hello\n\n"
    while not fake.stopping and fake.drop == cut:
        for event in fake.events[sent:]:
            yield _frame(event)
        sent = len(fake.events)
        await asyncio.sleep(0.02)


def _job_reads(app: FastAPI, fake: Fake) -> None:
    @app.get(f"{API}/jobs")
    def jobs(request: Request, limit: int = 100, after: str = "", user: str = "") -> Any:
        wanted = request.query_params.getlist("status")
        found = [job for job in fake.jobs.values() if job["status"] in wanted and user in {"", job["user"]}]
        if "newest" in request.query_params:
            found.reverse()
        start = next((at + 1 for at, job in enumerate(found) if job["id"] == after), 0)
        listed = found[start : start + limit]
        following = listed[-1]["id"] if start + limit < len(found) else None
        return {"jobs": listed, "next": following, "total": len(found)}

    @app.get(f"{API}/jobs/{{job}}")
    def job(job: str) -> Any:
        if job not in fake.jobs:
            return problem(404, "Not found", f"There is no job {job}.")
        found = fake.jobs[job]
        began = {"attempt": found["attempt"], "placed_s": found["started_s"], "started_s": found["started_s"]}
        ends = {"ended_s": found["ended_s"], "outcome": "", "exit_code": None, "machines": found["machines"]}
        attempts = [*found["earlier"], *([{**began, **ends}] if found["machines"] else [])]
        spec = {"command": ["python", "train.py"], "gpus": found["gpus"], "secrets": {"KEY": "***"}}
        return {**found, "spec": spec, "attempts": attempts, "explanation_text": ""}

    @app.get(f"{API}/jobs/{{job}}/explain")
    def explain(job: str) -> Any:
        return (
            fake.explain(fake.jobs[job])
            if job in fake.jobs
            else problem(404, "Not found", f"There is no job {job}.")
        )

    @app.get(f"{API}/jobs/{{job}}/traffic")
    def traffic(job: str) -> Any:
        return fake.traffic(fake.jobs[job])

    @app.get(f"{API}/jobs/{{job}}/measurements")
    def measurements(job: str) -> Any:
        if job not in fake.jobs:
            return problem(404, "Not found", f"There is no job {job}.")
        return fake_measurements(fake, fake.jobs[job])

    @app.get(f"{API}/jobs/{{job}}/logs")
    def logs(job: str, rank: int = 0, attempt: int = 1, offset: int = 0) -> Any:
        if not fake.jobs[job]["machines"] and not fake.jobs[job]["earlier"]:
            return problem(404, "Not found", f"{job} has not been started yet, so there is no log.")
        lines = [
            f"attempt {attempt}",
            *(f"[rank {rank}] step {step} loss {2.5 / (step + 1):.4f}" for step in range(60)),
        ]
        text = "\n".join([f"\x1b[32mstarted\x1b[0m {EVIL}", *lines, ""])
        rest = text[offset:] if offset >= 0 else text
        return {
            "rank": rank,
            "attempt": attempt,
            "offset": 0,
            "next_offset": len(text),
            "text": rest,
            "ended": False,
        }


def _writes(app: FastAPI, fake: Fake) -> None:
    @app.post(f"{API}/session")
    async def session(request: Request) -> Any:
        given = (await request.json())["token"]
        if given != fake.token:
            return problem(401, "Unauthorized", "There is no such token.")
        return JSONResponse({"session": given, "until_s": fake.now_s, "user": "ann", "role": fake.role}, 201)

    @app.post(f"{API}/jobs")
    async def submit(request: Request) -> Any:
        spec = await request.json()
        fake.asked.append(("POST", "jobs", spec))
        return JSONResponse({**fake.submit(spec)}, 201)

    @app.post(f"{API}/plan")
    async def plan(request: Request) -> Any:
        spec = await request.json()
        fake.asked.append(("POST", "plan", spec))
        if not 1 <= spec["gpus"] <= 100_000:
            wrong = [{"field": "gpus", "problem": "must be a whole number from 1 to 100000, not 0"}]
            return problem(422, "Unprocessable", "The job is not valid.", wrong)
        free = fake.free()
        starts = len(free) >= spec["gpus"]
        trial = {"id": "plan", "status": "waiting", "machines": ["x"] if starts else [], "predicted_start_s": None}
        said = fake.explain({**trial, "reason": "" if starts else f"Only {len(free)} GPUs are free."})
        placement = {**fake.placement(free[: spec["gpus"]]), "gpus": []} if starts else None
        return {"starts": starts, "explanation": said, "would_stop": [], "placement": placement}

    @app.post(f"{API}/moves")
    async def make_moves(request: Request) -> Any:
        body = await request.json()
        fake.asked.append(("POST", "moves", body))
        made = fake.moves(body["price_per_gpu_hour"])
        fake.movable = False
        for group in made["groups"]:
            for move in group["moves"]:
                fake.happens("moved", job=move["job"])
        return made

    @app.post(f"{API}/jobs/{{job}}/cancel")
    def cancel(job: str) -> Any:
        if fake.jobs[job]["status"] in OVER:
            return problem(409, "Conflict", f"{job} is over.")
        fake.release(fake.jobs[job], "cancelled")
        return fake.jobs[job]

    @app.post(f"{API}/nodes/{{name}}/{{verb}}")
    def change(name: str, verb: str) -> Any:
        machine = fake.names.index(name)
        fake.states[machine] = "drained" if verb == "drain" else "up"
        fake.happens("drained" if verb == "drain" else "resumed", machine=machine, name=name)
        return fake.node(machine)


@contextmanager
def serving(fake: Fake) -> Iterator[str]:
    """Serve a fake on a free port of this machine, and give its address."""
    config = uvicorn.Config(app_of(fake), port=0, log_level="error", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    fake.stopping = True
    server.should_exit = True
    thread.join(5)
