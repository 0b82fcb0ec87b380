"""What one training iteration of a model costs: compute times and gradient sizes.

The built-in library holds measurements (see `source` in `data/profiles_h200.json`). To add a model, write a
JSON file of the same form, or make a `ModelProfile` by hand, and pass it as `Job(model=...)`; see
`docs/use/profiles.md`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from cranny.model.errors import InputError, at, unknown
from cranny.model.validate import not_negative, positive, whole

FP32_BYTES = 4
# fp32 weight, gradient and momentum of each parameter stay in memory for the whole iteration.
RESIDENT_BYTES_PER_PARAMETER = 3 * FP32_BYTES


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """One model at one batch size on one type of GPU."""

    name: str
    grad_bytes: float
    iteration_ms: float
    batch: int = 1
    params: int = 0
    forward_ms: float = 0.0
    backward_ms: float = 0.0
    optimizer_ms: float = 0.0
    peak_mem_mb: float = 0.0
    layers: int = 1
    gpu_type: str = ""
    exchanged_bytes: float = 0.0  # that a rank hands to all: vectors of embeddings that are partitioned over ranks
    tied_bytes: float = (
        0.0  # of gradients that the first stage of a pipeline shares with the last: tied embeddings
    )
    # (ms after the iteration's start, bytes), in the order in which the buckets become ready
    gradient_buckets: tuple[tuple[float, int], ...] = ()

    def __post_init__(self) -> None:
        for field in ("grad_bytes", "iteration_ms"):
            positive(getattr(self, field), f"profile {self.name!r}: {field}")
        for field in (
            *("params", "forward_ms", "backward_ms", "optimizer_ms", "peak_mem_mb"),
            *("exchanged_bytes", "tied_bytes"),
        ):
            not_negative(getattr(self, field), f"profile {self.name!r}: {field}")
        for field in ("batch", "layers"):
            whole(getattr(self, field), f"profile {self.name!r}: {field}")
        for number, bucket in enumerate(self.gradient_buckets):
            what = f"profile {self.name!r}: gradient_buckets[{number}]"
            if not isinstance(bucket, tuple) or len(bucket) != 2:
                raise InputError(f"{what} must be a pair of ms and bytes, not {bucket!r}")
            not_negative(bucket[0], f"{what}: ms")
            positive(bucket[1], f"{what}: bytes")

    @lru_cache(maxsize=4096)  # noqa: B019 - profiles are few, and live as long as their library
    def stretched(self, times: float) -> "ModelProfile":
        """Return the model as it trains where computing takes so many times longer."""
        return replace(
            self,
            iteration_ms=self.iteration_ms * times,
            forward_ms=self.forward_ms * times,
            backward_ms=self.backward_ms * times,
            optimizer_ms=self.optimizer_ms * times,
            gradient_buckets=tuple((ms * times, size) for ms, size in self.gradient_buckets),
        )

    @property
    def iteration_s(self) -> float:
        """Seconds of one iteration when no gradient leaves the machine."""
        return self.iteration_ms / 1e3

    @property
    def activation_bytes(self) -> float:
        """Estimate of the activations that one layer hands to the next, for one batch.

        Peak memory less what stays resident is the activations of all layers; we divide it evenly.
        """
        held = self.peak_mem_mb * 1e6 - RESIDENT_BYTES_PER_PARAMETER * self.params
        return max(held, 0.0) / self.layers

    @property
    def skew(self) -> float:
        """Largest gradient bucket over the mean bucket: how much one tensor dominates the model."""
        sizes = [size for _, size in self.gradient_buckets]
        return max(sizes) * len(sizes) / sum(sizes) if sizes else 1.0


class ProfileLibrary(Mapping[str, ModelProfile]):
    """Profiles by model name; a name stands for its largest measured batch."""

    def __init__(self, profiles: Mapping[str, tuple[ModelProfile, ...]]) -> None:
        self._profiles = dict(profiles)
        self._largest = {
            name: max(measured, key=lambda profile: profile.batch) for name, measured in profiles.items()
        }

    def __getitem__(self, name: str) -> ModelProfile:
        try:
            return self._largest[name]
        except KeyError:
            raise unknown("model", name, self._largest) from None

    def __contains__(self, name: object) -> bool:
        return name in self._largest

    def __iter__(self) -> Iterator[str]:
        return iter(self._largest)

    def __len__(self) -> int:
        return len(self._largest)

    def at(self, name: str, batch: int) -> ModelProfile:
        """Return the profile of `name` measured at exactly this batch size."""
        measured = self._profiles[self[name].name]
        for profile in measured:
            if profile.batch == batch:
                return profile
        batches = ", ".join(str(profile.batch) for profile in measured)
        raise InputError(f"model {name!r} was not measured at batch {batch}; measured: {batches}")

    def with_file(self, path: str | Path) -> "ProfileLibrary":
        """Return this library plus the models of a JSON file (which win where names repeat)."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"{at(path)}: there is no such file") from None
        except OSError as error:
            raise InputError(f"{at(path)}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{at(path)}: not a text file in UTF-8") from None
        return self.with_text(text, str(path))

    def with_text(self, text: str, file: str) -> "ProfileLibrary":
        """Return this library plus the models of such a file's text; `file` names it in errors."""
        return ProfileLibrary({**self._profiles, **_read(text, file)})


def _read(text: str, file: str) -> dict[str, tuple[ModelProfile, ...]]:
    """Parse a profile file; `file` names it in errors."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise InputError(f"{at(file)}: nested too deep") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{at(file, error.lineno)}: not JSON: {error.msg}") from None
    if not isinstance(content, dict) or not isinstance(content.get("models"), dict):
        raise InputError(f"{at(file, field='models')}: expected an object with one entry a model")
    gpu_type = str(content.get("gpu_type", ""))
    return {name: _measured(name, entry, gpu_type, file) for name, entry in content["models"].items()}


def _measured(name: str, entry: object, gpu_type: str, file: str) -> tuple[ModelProfile, ...]:
    """Read the measurements of one model."""
    spot = f"models.{name}"
    rows = entry.get("measured") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(rows, list) or not rows:
        where = at(file, field=f"{spot}.measured")
        raise InputError(f"{where}: expected a list with one entry for each batch size")
    common = {"name": name, "layers": entry.get("layers", 1), "gpu_type": gpu_type}
    return tuple(
        _profile(common, row, at(file, field=f"{spot}.measured[{number}]")) for number, row in enumerate(rows)
    )


def _profile(common: Mapping[str, Any], row: object, where: str) -> ModelProfile:
    """Read one measurement; `where` names its spot in the file."""
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected an object, not {row!r}")
    known = [field.name for field in fields(ModelProfile) if field.name not in common]
    for key in row:
        if key not in known:
            raise InputError(f"{where}: {unknown('field', key, known)}")
    for key in ("grad_bytes", "iteration_ms"):
        if key not in row:
            raise InputError(f"{where}.{key}: missing")
    buckets = row.get("gradient_buckets", [])
    if not isinstance(buckets, list):
        raise InputError(f"{where}.gradient_buckets: expected a list of pairs, not {buckets!r}")
    pairs = tuple(tuple(bucket) if isinstance(bucket, list) else bucket for bucket in buckets)
    try:
        return ModelProfile(**{**common, **row, "gradient_buckets": pairs})
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


@cache
def library() -> ProfileLibrary:
    """Return the built-in profiles."""
    text = resources.files("cranny.data").joinpath("profiles_h200.json").read_text(encoding="utf-8")
    return ProfileLibrary(_read(text, "profiles_h200.json"))
