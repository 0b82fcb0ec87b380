"""The heat map of a network: what cells say, how they are laid out, and how they are drawn."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cranny.core.flows import fixed, parameter_server
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.network.steady.link_load import FULL, JobStream, Load
from cranny.report.heatmap import LEVELS, blocks, gbps, heat_table, level, line, percent, summary, worst
from cranny.report.network_page import HEIGHT, WIDTH, heat_svg, layout, section, write_page

EVIL = "<script>alert(1)</script>"
# Two racks of two machines with links of 100 Gbps; the racks' uplinks have 50 Gbps, their switches a PAT of 30.
SMALL = Cluster.fat_tree(2, 2, 4, link_gbps=100.0, oversubscription=4.0, pat_gbps=30.0)


def job_stream(name: str, *links: int, alone_gbps: float = 100.0) -> JobStream:
    return JobStream(name, fixed(dict.fromkeys(links, 1.0)), alone_gbps)


@pytest.fixture
def load() -> Load:
    crossing = [JobStream(name, parameter_server(SMALL, [0, 2], server=2), 50.0) for name in ("b", "c")]
    return Load.of(SMALL, [job_stream("a", 0, 1), *crossing])


def shown(load: Load, width: int = 80, *, plain: bool = False) -> str:
    console = Console(width=width, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(heat_table(load, width, plain=plain))
    return captured.get()


@pytest.mark.parametrize(
    ("share", "name"),
    [
        (0.0, "unused"),
        (1e-5, "unused"),
        (0.01, "to 20 %"),
        (0.2, "to 20 %"),
        (0.21, "to 40 %"),
        (0.8, "to 80 %"),
        (0.81, "below full"),
        (0.9999, "below full"),
        (1.0, "full"),
        (1.0 - 1e-12, "full"),
    ],
)
def test_a_share_has_a_colour(share: float, name: str) -> None:
    assert LEVELS[level(share)] == name
    assert LEVELS[level(share, holds_back=True)] == ("full, holds jobs back" if name == "full" else name)


def test_a_link_that_one_job_fills_looks_calmer_than_one_that_holds_jobs_back(load: Load) -> None:
    alone = Load.of(SMALL, [job_stream("a", 0, 1)])
    assert alone.full.tolist() == [0, 1]
    assert not alone.holds_back.any()
    (filled, _), _ = (block.machines for block in blocks(alone))
    assert LEVELS[filled.level] == "full"
    assert filled.about.endswith("1 job, 1 flow; holds no job back")
    assert [link["holds_back"] for link in alone.facts()["links"]] == [0] * 6
    assert "!" not in shown(alone).replace("! full, holds jobs back", "")
    assert '<path class="h7"' not in heat_svg(blocks(alone), "map")
    # Both racks' uplinks hold b and c; the machine's link holds a, which is the fastest on it.
    assert load.holds_back.tolist() == [1, 0, 0, 0, 2, 2, 0]
    assert '<path class="h7"' in heat_svg(blocks(load), "map")


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=8))
def test_every_listed_link_is_one_that_holds_jobs_back(links: list[set[int]]) -> None:
    racks = {4, 5}  # whose uplinks have 50 Gbps
    job_streams = [
        job_stream(str(name), *used, alone_gbps=50 if used & racks else 100) for name, used in enumerate(links)
    ]
    load = Load.of(SMALL, job_streams)
    assert all(load.holds_back[each.link] for each in worst(load, 100))
    assert (load.share[load.holds_back > 0] >= FULL).all()
    assert (load.link_jobs[load.holds_back > 0] > 1).all()
    assert (load.holds_back.sum() > 0) == any(job.held_back for job in load.jobs)


def test_what_is_not_quite_full_does_not_read_as_full() -> None:
    assert [percent(share) for share in (0.0, 0.001, 0.25, 0.999, 1.0)] == [
        "0 %",
        "under 1 %",
        "25 %",
        "99 %",
        "100 %",
    ]
    assert [gbps(value) for value in (0.0, 6.25, 100.0, 1600.4, 99.98)] == ["0", "6.2", "100", "1,600", "100"]


def test_a_block_has_the_links_and_the_memory_of_a_rack(load: Load) -> None:
    first, second = blocks(load)
    assert first.name == "rack0"
    assert [cell.share for cell in first.machines] == pytest.approx([1.0, 0.5])
    assert (
        first.machines[0].about
        == "uplink of machine rack0-machine0: 100 %, 100 of 100 Gbps, 3 jobs, 3 flows; holds 1 job back"
    )
    assert first.uplink is not None
    assert first.uplink.about == "uplink of switch rack0: 100 %, 50 of 50 Gbps, 2 jobs, 2 flows; holds 2 jobs back"
    assert second.memory is not None
    assert second.memory.about == "switch memory: 100 %, 30 of 30 Gbps PAT, 2 jobs"
    told = "machines' uplinks: 75 % on average, 100 % at most, 1 full, 1 of them holds jobs back"
    assert first.about.splitlines()[:2] == ["rack0", told]


def test_many_machines_share_cells_and_many_racks_share_blocks() -> None:
    cluster = Cluster.fat_tree(10, 9, 1)
    made = blocks(Load.of(cluster, [job_stream("a", 0, 1)]), max_cells=30, max_blocks=5)
    assert [block.name for block in made] == [f"rack{rack} to rack{rack + 1}" for rack in range(0, 10, 2)]
    assert {len(block.machines) for block in made} == {6}
    assert made[0].machines[0].share == pytest.approx(2 / 3)
    about = "uplink of machine rack0-machine0 and 2 more: 66 % on average, 100 % at most, 2 full"
    assert made[0].machines[0].about == about.replace("66", "67")
    assert made[0].memory is None


def test_links_above_racks_have_a_block_of_their_own() -> None:
    cluster = Cluster.fat_tree(4, 2, 1, racks_per_pod=2)
    made = blocks(Load.of(cluster, ()))
    assert [block.name for block in made] == ["rack0", "rack1", "rack2", "rack3", "above racks"]
    assert [cell.about.split(":")[0] for cell in made[-1].machines] == [
        "uplink of switch pod0",
        "uplink of switch pod1",
    ]


def test_machines_right_below_the_top_have_no_uplink_of_a_rack() -> None:
    cluster = Cluster.of(Switch("top", (Machine("a", 1), Machine("b", 1)), (10.0, 10.0)))
    (block,) = blocks(Load.of(cluster, ()))
    assert block.uplink is None
    assert "uplink of switch" not in heat_svg([block], "map")


def test_what_a_rack_lacks_leaves_a_gap() -> None:
    rack = Switch("rack", (Machine("b", 1), Machine("c", 1)), (10.0, 10.0), pat_gbps=5.0)
    made = blocks(Load.of(Cluster.of(Switch("top", (Machine("a", 1), rack), (10.0, 10.0), pat_gbps=5.0)), ()))
    assert [(block.uplink is None, block.memory is None) for block in made] == [(True, False), (False, False)]
    plan = layout(made)
    memory_at = plan.label + plan.wide + plan.gap
    assert heat_svg(made, "map").count(f"M{memory_at:g} ") == 2  # below each other


@pytest.mark.parametrize(
    ("racks", "machines"), [(1, 1), (1, 8), (2, 4), (16, 16), (64, 8), (625, 16), (1, 2000), (3000, 1), (900, 20)]
)
def test_every_size_of_cluster_fits_the_page(racks: int, machines: int) -> None:
    load = Load.of(Cluster.fat_tree(racks, machines, 1, pat_gbps=10.0), [job_stream("a", 0)])
    made = blocks(load)
    plan = layout(made)
    assert plan.width <= WIDTH
    assert plan.height <= HEIGHT
    drawn = heat_svg(made, "map")
    cells = sum(len(block.machines) for block in made) + 2 * len(made)
    assert len(re.findall(r"M[\d.]+ [\d.]+h", drawn)) == cells
    assert len(drawn) < 1_000_000
    corners = np.array([[float(x), float(y)] for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", drawn)])
    assert len(np.unique(corners, axis=0)) == cells  # none lies on another
    assert (corners.max(axis=0) < (plan.width, plan.height)).all()


def test_the_largest_cells_that_fit_are_taken() -> None:
    sizes = [layout(blocks(Load.of(Cluster.fat_tree(racks, 16, 1), ()))).size for racks in (2, 16, 64, 625)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 34


def test_pointing_at_a_cell_names_it(load: Load) -> None:
    drawn = heat_svg(blocks(load), "Heat map of the network.")
    assert "<title>uplink of machine rack0-machine0: 100 %" in drawn
    assert 'role="img" aria-label="Heat map of the network."' in drawn


def test_a_terminal_shows_a_letter_a_machine(load: Load) -> None:
    lines = [text.split() for text in shown(load).splitlines()]
    assert ["rack0", "!▃", "!", "100", "%", "█", "100", "%"] in lines
    assert ["rack1", "▃·", "!", "100", "%", "█", "100", "%"] in lines
    assert ["rack0", "!+", "!", "100", "%", "#", "100", "%"] in [
        text.split() for text in shown(load, plain=True).splitlines()
    ]
    assert shown(load, plain=True).replace("─", "").isascii()


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize(("racks", "machines"), [(1, 8), (1, 500), (16, 16), (40, 64), (625, 16), (3000, 1)])
def test_a_terminal_is_never_too_narrow(racks: int, machines: int, width: int) -> None:
    lines = shown(Load.of(Cluster.fat_tree(racks, machines, 1, pat_gbps=10.0), ()), width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 150
    assert not any("…" in text for text in lines)


def test_words_say_who_is_held_back(load: Load) -> None:
    assert summary(load).startswith(
        "3 running jobs use links; 3 of 6 links are full, and all of these hold jobs back. "
        "Sharing slows 3 jobs: on average to "
    )
    first = worst(load, 1)
    jobs = "b at 25 Gbps (alone 50), c at 25 Gbps (alone 50)"
    told = [line(load, each) for each in first]
    assert told == [f"uplink of switch rack0: 50 of 50 Gbps, 2 flows of 2 jobs; holds {jobs}"]
    assert summary(Load.of(SMALL, [job_stream("a", 0, 1)])) == (
        "1 running job uses links; 2 of 6 links are full. Every job is as fast as it would be alone."
    )
    assert summary(Load.of(SMALL, ())) == "No running job uses a link."
    assert worst(Load.of(SMALL, [job_stream("a", 0, 1)]), 5) == []


def test_names_stay_text_on_the_page(tmp_path: Path) -> None:
    rack = Switch(EVIL, (Machine("a" + EVIL, 1), Machine("b", 1)), (10.0, 10.0))
    cluster = Cluster.of(Switch("top", (rack,), (10.0,)))
    load = Load.of(cluster, [job_stream(EVIL, 0, 1, alone_gbps=10.0), job_stream("b", 0, 1, alone_gbps=10.0)])
    page = write_page(load, tmp_path / "new" / "page.html", title=EVIL, kicker=EVIL, command=EVIL)
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<script" not in section({EVIL: load}, 5.0)


def test_a_report_without_shared_links_has_no_section() -> None:
    assert section({}, 0.0) == ""
