"""Names of GPU types: which mean one type, and which do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.traces.gpu_types import canonical, closest, matching, parse, part_of_gpu, same_type

NAMES = (
    "a100",
    "A100-SXM4-80GB",
    "nvidia_a100_80gb_pcie",
    "a100-40",
    "Tesla-V100-SXM2-32GB",
    "h100",
    "1g.5gb",
    "",
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a100", "a100"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("nvidia_a100-sxm4-80gb", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("nvidia_a100_80gb_pcie", "a100-pcie-80gb"),
        ("Tesla-V100-SXM2-32GB", "v100-sxm-32gb"),
        ("a100-40", "a100-40gb"),
        ("a100_80g", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "h100-80gb"),
        ("a100_1g.5gb", "a100"),
        ("1g.5gb", "1g.5gb"),
        ("NVIDIA-GeForce-RTX-3090", "3090"),
        ("rtx3090", "3090"),
        ("GeForce GTX 1080 Ti", "1080ti"),
        ("1080ti", "1080ti"),
        ("rtx_a6000", "a6000"),
        ("Quadro RTX 6000", "rtx6000"),
        ("RTX 6000 Ada Generation", "rtx6000ada"),
        ("Tesla-T4-SHARED", "t4"),
        ("AMD Instinct MI300X OAM", "mi300x-oam"),
        ("gpu", "gpu"),
        ("V100M32", "v100m32"),
    ],
)
def test_a_name_is_written_one_way(name: str, found: str) -> None:
    assert canonical(name) == found


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("A100", "a100", True),
        ("a100", "nvidia_a100-sxm4-80gb", True),
        ("a100", "a100-40", True),
        ("a100-40", "a100-80", False),
        ("a100-pcie", "A100-SXM4-80GB", False),
        ("a100-80gb", "A100-SXM4-80GB", True),
        ("a10", "a100", False),
        ("v100", "v100s", False),
        ("rtx6000", "rtx6000ada", False),
        ("rtx6000", "a6000", False),
        ("l40", "l40s", False),
        ("tesla", "a100", False),
        ("", "a100", False),
    ],
)
def test_names_are_one_type_unless_what_both_say_differs(first: str, second: str, *, same: bool) -> None:
    assert same_type(first, second) is same
    assert same_type(second, first) is same


def test_the_exact_name_matches_before_those_that_say_less_or_more() -> None:
    known = ["a100-40gb", "A100-SXM4-80GB", "a100", "v100"]
    assert matching("a100", known) == ["a100"]
    assert matching("A100", known) == ["a100"]
    assert matching("a100", known[:2]) == ["a100-40gb", "A100-SXM4-80GB"]
    assert matching("a100-80gb", known) == ["A100-SXM4-80GB", "a100"]
    assert matching("h100", known) == []


def test_suggests_the_same_model_else_what_is_written_alike() -> None:
    assert closest("a100-40gb", ["a100-80gb", "v100"]) == "a100-80gb"
    assert closest("aa100", ["A100", "V100"]) == "A100"
    assert closest("mi300x", ["A100", "V100"]) is None
    assert closest("a100", []) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("1g.5gb", 1 / 7),
        ("a100_1g.5gb", 1 / 7),
        ("mig-3g.40gb", 3 / 7),
        ("nvidia_h100_1g.10gb+me", 1 / 7),
        ("7g.80gb", 1.0),
        ("1g.6gb", 1 / 4),
        ("a30_2g.12gb", 1 / 2),
        ("a100", None),
        ("a100-80gb", None),
    ],
)
def test_a_mig_profile_is_a_share_of_the_slices(name: str, part: float | None) -> None:
    assert part_of_gpu(name) == (None if part is None else pytest.approx(part))


@given(name=st.one_of(st.sampled_from(NAMES), st.text(max_size=40)))
def test_every_name_is_its_own_type_however_it_is_cased(name: str) -> None:
    assert same_type(name, name)
    assert parse(name.lower()) == parse(name) or name.lower().lower() != name.lower()
    assert same_type(canonical(name), name)
