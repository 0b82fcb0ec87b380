"""Samples of a dataset for ranks that do not get equally many: each of an epoch exactly once over all ranks.

Which samples an iteration has follows from the seed and the number of the iteration alone, not from how many ranks
there are and how they divide it. So a training that goes on with other ranks, or with other shares, goes through
the same samples in the same order.
"""

from collections.abc import Callable, Iterator, Sized
from typing import TYPE_CHECKING, NamedTuple

from cranny.model.errors import InputError
from cranny.model.validate import whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Drawn(NamedTuple):
    """How many samples an iteration has: of this rank, and of all ranks."""

    own: int
    all: int


class ShareSampler:
    """Yields the samples of one rank, an iteration at a time: the `batch_sampler` of a PyTorch `DataLoader`.

    An epoch has as few iterations as the batch allows, all of the same size but for one sample. Iterating yields
    the rest of an epoch, from the iteration that is about to start.
    """

    def __init__(
        self,
        dataset: Sized,
        batch: int,
        *,
        rank: int,
        seed: int,
        shuffle: bool,
        next_step: Callable[[], int],
        divide: Callable[[int, int], tuple[int, ...]],
    ) -> None:
        self._size = len(dataset)
        if self._size == 0:
            raise InputError("a dataset without samples cannot be divided among ranks")
        self._rank, self._shuffle = rank, shuffle
        self._seed = whole(seed, "seed", least=0, most=2**64)
        self._next_step, self._divide = next_step, divide
        self.iterations = -(-self._size // batch)  # of an epoch
        self._position: int | None = None  # the next iteration, while all that were drawn are used
        self.ahead = 0  # the most iterations for which samples were drawn before they started
        self._drawn: dict[int, Drawn] = {}

    def __iter__(self) -> Iterator[list[int]]:
        step = self._next_step() if self._position is None else self._position
        self._position = None  # if the epoch is left before its end, the next one goes on from the steps done
        return self._rest(step)  # from the iteration that is about to start now, not when the first one is drawn

    def _rest(self, step: int) -> Iterator[list[int]]:
        """Yield this rank's samples of a step, and of those that follow in its epoch."""
        epoch, first = divmod(step, self.iterations)
        order = self._order(epoch)
        for index in range(first, self.iterations):
            begin, end = (each * self._size // self.iterations for each in (index, index + 1))
            parts = self._divide(step, end - begin)
            begin += sum(parts[: self._rank])
            self._note(step, Drawn(parts[self._rank], sum(parts)))
            step += 1
            self._position = step if index + 1 == self.iterations else None
            yield order[begin : begin + parts[self._rank]].tolist()

    def __len__(self) -> int:
        step = self._next_step() if self._position is None else self._position
        return self.iterations - step % self.iterations

    def drawn(self, step: int) -> Drawn | None:
        """Return how many samples were drawn for an iteration; None if none were."""
        return self._drawn.get(step)

    def _note(self, step: int, drawn: Drawn) -> None:
        """Remember how many samples an iteration has, until it is over."""
        self._drawn[step] = drawn
        upcoming = self._next_step()
        self.ahead = max(self.ahead, step + 1 - upcoming)
        for over in [each for each in self._drawn if each < upcoming - 1]:
            del self._drawn[over]

    def _order(self, epoch: int) -> "NDArray[np.int64]":
        """Return all samples in the order of an epoch."""
        import numpy as np  # jobs that do not use a sampler need no NumPy

        if not self._shuffle:
            return np.arange(self._size)
        return np.random.default_rng((self._seed, epoch)).permutation(self._size)
