"""The worlds that policies are judged in, as data: those of the four papers, oversubscribed ones, and failures."""

from dataclasses import replace
from typing import Any

from benchmarks.regret.log_world import LogWorld
from benchmarks.regret.paper_worlds import (
    HAS_LEFT_OUT,
    CassiniWorld,
    HasWorld,
    NetpackWorld,
)
from benchmarks.regret.world import AT_ARRIVALS, ITERATIONS, RESTART_S, RIGID_LEFT_OUT, World
from cranny.repro.cassini.paper import TRACES
from cranny.repro.netpack.setups import setup

LABELS = {"itp": "ITP", "philly": "Philly", "acme": "Acme"}
# Jobs, racks, and loads at which jobs wait for GPUs now and then. A few long jobs hold most of the GPU-time of
# Philly and Acme, and run on when no more jobs come.
SIZES: dict[str, dict[str, Any]] = {
    "itp": {"jobs": 1500, "racks": 8, "load": 0.9},
    "philly": {"jobs": 3000, "racks": 4, "load": 0.8},
    "acme": {"jobs": 3000, "racks": 4, "load": 0.7},
}
HELD_OUT = ("philly", "acme")
COLLECTIVES = {"ring": "ring", "halving": "halving-doubling", "gloo": "gloo-halving-doubling"}
OWN_COLLECTIVE = "halving-doubling"  # of Titan's paper
# With room for all jobs their times are the same under every policy if communication takes none. If it takes time,
# jobs that are slow on full machines are many at an arrival, which flatters fragmentation.
ROOMY: dict[str, dict[str, tuple[str, ...]]] = {
    "instant": {"judged": ("machine_hours",), "extra": AT_ARRIVALS},
    "isolated": {"extra": tuple(metric for metric in AT_ARRIVALS if metric != "mean_fragmentation")},
}


def _log(key: str, mix: str, about: str, **form: Any) -> LogWorld:
    """Return a world of a mix; `form` is what it has of its own."""
    known: dict[str, Any] = SIZES[mix] | {"left_out": RIGID_LEFT_OUT} | form
    return LogWorld(
        key=f"{key}-{mix}",
        about=f"{LABELS[mix]} mix, {about}",
        mix=mix,
        held_out=mix in HELD_OUT,
        **known,
    )


def _titan() -> list[World]:
    """Return Titan's world: full clusters under three collectives, and its own with room for all jobs."""
    found: list[World] = [
        _log(
            f"titan-{short}",
            mix,
            f"{collective}, isolated, {SIZES[mix]['racks']} racks of 64 GPUs",
            collective=collective,
        )
        for mix in LABELS
        for short, collective in COLLECTIVES.items()
    ]
    roomy = {"racks": 64, "load": None, "jobs": 3000, "collective": OWN_COLLECTIVE}
    found += [
        _log(
            f"titan-room-{network}",
            mix,
            f"{OWN_COLLECTIVE}, {network}, 512 x 8 GPUs, room for all",
            network=network,
            **roomy,
            **judged,
        )
        for mix in LABELS
        for network, judged in ROOMY.items()
    ]
    return found


def _netpack(key: str, on: str, workload: str, about: str, *, jobs: int = 1000, **form: Any) -> NetpackWorld:
    """Return a set-up of NetPack's with something varied."""
    return NetpackWorld(
        key=f"netpack-{key}",
        about=f"NetPack's {on}, {workload}, {about}",
        jobs=jobs,
        setup=replace(setup(on, workload), **form),
        held_out=workload == "real",  # its log is Philly's
        left_out=RIGID_LEFT_OUT,
    )


def _cassini(
    key: str, trace: str, about: str, *, fours: bool = False, restart_s: float = RESTART_S
) -> CassiniWorld:
    """Return a trace of CASSINI's."""
    return CassiniWorld(
        key=f"cassini-{key}",
        about=f"CASSINI's {about}, phases",
        jobs=20,
        trace=next(each for each in TRACES if each.key == trace and each.fours == fours),
        restart_s=restart_s,
        extra=ITERATIONS,
    )


def _has(key: str, about: str, *, left_out: dict[str, str], **form: Any) -> HasWorld:
    """Return a world of mixed GPUs."""
    return HasWorld(
        key=f"has-{key}",
        about=f"HAS's mixed GPUs, {about}",
        extra=("fairness",),
        left_out=HAS_LEFT_OUT | left_out,
        **form,
    )


_SLOW_SEARCH = {
    "has": "up to 5 million splits at every arrival",
    "pollux": "a genetic search every minute: 30 s a replay",
    "pollux+cassini": "a genetic search every minute: 30 s a replay",
}
WORLDS: dict[str, World] = {
    world.key: world
    for world in (
        *_titan(),
        _netpack("real", "simulator", "real", "Fig. 7", jobs=2000),
        _netpack("poisson", "simulator", "poisson", "Fig. 7"),
        _netpack("testbed-real", "testbed", "real", "Fig. 7"),
        _netpack("testbed-poisson", "testbed", "poisson", "Fig. 7"),
        _netpack("112-real", "simulator", "real", "112 servers, Fig. 9", jobs=2000, machines=7),
        _netpack("50-poisson", "simulator", "poisson", "PAT 50 Gbps, Fig. 11", pat_gbps=50.0),
        _netpack("no-ina-poisson", "simulator", "poisson", "no switch memory, Fig. 11", pat_gbps=0.0),
        _netpack("testbed-no-ina", "testbed", "poisson", "no switch memory, Fig. 11", pat_gbps=0.0),
        _netpack("4to1-poisson", "simulator", "poisson", "4:1, Fig. 12", oversubscription=4.0),
        _netpack("20to1-poisson", "simulator", "poisson", "20:1, Fig. 12", oversubscription=20.0),
        _netpack("20to1-real", "simulator", "real", "20:1, Fig. 12", jobs=2000, oversubscription=20.0),
        _cassini("poisson", "poisson", "Poisson trace"),
        _cassini("dynamic", "dynamic", "dynamic trace"),
        _cassini("dynamic-fours", "dynamic", "dynamic trace, switches of four", fours=True),
        _cassini("poisson-free", "poisson", "Poisson trace, moves free", restart_s=0.0),
        _cassini("dynamic-free", "dynamic", "dynamic trace, moves free", restart_s=0.0),
        _has("batch", "four jobs at once, moves 60 s", jobs=4, left_out={}),
        _has("batch-600", "four jobs at once, moves 600 s", jobs=4, restart_s=600.0, left_out={}),
        _has("stream", "jobs one after the other", jobs=40, machines=6, load=1.5, left_out=_SLOW_SEARCH),
        *(
            _log(
                f"over-{ratio}to1",
                mix,
                f"ring, steady, {ratio}:1, {SIZES[mix]['racks']} racks of 64 GPUs",
                network="steady",
                oversubscription=float(ratio),
            )
            for ratio in (4, 8)
            for mix in ("itp", "acme")
        ),
        *(
            _log(
                "failures",
                mix,
                "ring, steady, 4:1, machines fail",
                network="steady",
                oversubscription=4.0,
                failures=True,
            )
            for mix in ("itp", "acme")
        ),
    )
}
