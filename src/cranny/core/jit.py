"""How functions are compiled: once for all processes, on arrays that Python made.

Numba takes a second to import. So this module, and every kernel that uses it, is imported where it is used.
"""

import signal
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, TypeVar, cast, get_type_hints

import numba
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.core.event import Listener, register
from numba.core.runtime.nrt import rtsys

from cranny.core.compile_lock import CompileLock


def _load_without_blas() -> None:
    """Load what Numba knows of arrays without SciPy's linear algebra: 0.25 s and 16 MB that no kernel here needs.

    Code that does finds it all the same: Numba looks again when it compiles such a function.
    """
    if "scipy.linalg" not in sys.modules:
        sys.modules["scipy.linalg"] = cast("Any", None)  # as if it were not installed
        try:
            import_module("numba.np.arraymath")
        finally:
            del sys.modules["scipy.linalg"]


_load_without_blas()

F = TypeVar("F", bound=Callable[..., Any])


class _DeferredInterrupt(Listener):
    """Defers Ctrl-C while code compiles: the compiler would lose it, and then fail with an error of its own."""

    def __init__(self) -> None:
        self._handler: Any = None  # that was there before
        self._depth = 0
        self._pending = False

    def on_start(self, _event: object) -> None:
        """Defer Ctrl-C from now on."""
        if current_thread() is main_thread():
            self._depth += 1
            if self._depth == 1 and callable(signal.getsignal(signal.SIGINT)):
                self._handler = signal.signal(signal.SIGINT, self._defer)

    def on_end(self, _event: object) -> None:
        """Deliver a deferred Ctrl-C, also where code that is called is compiled and its caller is not."""
        if current_thread() is main_thread():
            self._depth -= 1
            handler = self._handler
            if handler is not None and (self._pending or not self._depth):
                signal.signal(signal.SIGINT, handler)
                self._handler = None
                if self._pending:
                    self._pending = False
                    handler(signal.SIGINT, None)

    def _defer(self, _signal: int, _frame: object) -> None:
        self._pending = True


register("numba:compiler_lock", _DeferredInterrupt())  # type: ignore[no-untyped-call]


class _LockRelease(Listener):
    """Releases the locks of functions whose compilation failed, once the compiler is done."""

    def __init__(self) -> None:
        self.held: set[CompileLock] = set()
        self._depth = 0

    def on_start(self, _event: object) -> None:
        """Count how many compilations began within another."""
        self._depth += 1

    def on_end(self, _event: object) -> None:
        """Release what is still held when the outermost one has ended."""
        self._depth -= 1
        while not self._depth and self.held:
            self.held.pop().release()


_locks = _LockRelease()
register("numba:compiler_lock", _locks)  # type: ignore[no-untyped-call]


class _Cache(FunctionCache):
    """What was compiled before; a file that cannot be read is discarded, and not a reason to fail.

    Numba would fail if an older version of a module left a file about classes that have moved since, or a file is
    cut short. And it looks for changes in the function's own file alone, although what it calls of other files is
    compiled into it: an upgraded cranny would compute as before.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        known: Any = self
        file = known._cache_file  # noqa: SLF001 - Numba has no other way to say when it is outdated
        self.source = file._source_stamp = f"{file._source_stamp} {_imported(function)}"  # noqa: SLF001
        self._lock = CompileLock(Path(known.cache_path) / f"{known._impl.filename_base}.lock")  # noqa: SLF001

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return a function that was compiled before, if need be by a process that is at it; or None."""
        found = self._load(signature, context)
        if found is None:
            self._lock.acquire()
            _locks.held.add(self._lock)
            found = self._load(signature, context)
            if found is not None:
                self._release()
        return found

    def save_overload(self, signature: Any, made: Any) -> None:
        """Keep what was compiled, for processes that wait for it and those to come."""
        cache: Any = super()
        cache.save_overload(signature, made)
        self._release()

    def _release(self) -> None:
        self._lock.release()
        _locks.held.discard(self._lock)

    def _load(self, signature: Any, context: Any) -> Any:
        """Return a function that was compiled before, or None.

        Numba would first load all that a compilation may need, for 0.25 s. Compiled code needs no more than the
        runtime, and a compilation loads the rest by itself.
        """
        cache: Any = self
        runtime: Any = rtsys
        runtime.initialize(context)
        try:
            return cache._load_overload(signature, context)  # noqa: SLF001 - the part of it that loads
        except Exception:  # noqa: BLE001 - unpickling may raise anything
            cache.flush()
            return None


@cache  # a pointer to a function has the same as the function, although its module is complete by then
def _imported(function: Callable[..., Any]) -> str:
    """Return a digest of what compiled code of a function may have of other modules.

    That is functions, named tuples and constants which are numbers, or tuples of them. Kernels import each of them
    by its name.
    """
    digest = sha256()
    for name, value in sorted(function.__globals__.items()):
        kept = vars(value).get("_cache") if isinstance(value, Dispatcher) else None
        if isinstance(kept, _Cache):
            digest.update(f"{name} {kept.source}\n".encode())
        elif isinstance(value, type) and issubclass(value, tuple):
            digest.update(f"{name} {_fields(value)}\n".encode())
        elif _is_number(value) or (isinstance(value, tuple) and all(map(_is_number, value))):
            digest.update(f"{name} {value}\n".encode())
    return digest.hexdigest()


def _fields(kind: Any) -> str:
    """Return the names and types of a value's fields, and of those that these have; other types by their names."""
    fields = vars(kind).get("_fields", ()) if isinstance(kind, type) else ()
    types = get_type_hints(kind) if fields else {}
    return f"{kind}({', '.join(f'{name}: {_fields(types.get(name))}' for name in fields)})"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _cached(made: Any, function: Callable[..., Any]) -> Any:
    cache: Any = _Cache
    made._cache = cache(function)  # noqa: SLF001 - Numba has no other way to say it
    return made


def _compiler(**options: Any) -> Callable[[F], F]:
    """Return what compiles a function with some of Numba's options, once for all processes."""

    def compile_function(function: F) -> F:
        try:
            return cast("F", _cached(numba.njit(**options)(function), function))
        except RuntimeError:  # this account can write nowhere: every process compiles for itself
            return cast("F", numba.njit(**options)(function))

    return compile_function


# For functions that make arrays of their own.
allocating = _compiler()
# For all others, without Numba's counting of references, which takes most of the time when arrays come in a tuple:
# Python holds on to all of them, and nothing in a kernel makes new ones.
compiled = _compiler(_nrt=False)
# The same for those that run for long: other threads run Python meanwhile.
unlocked = _compiler(_nrt=False, nogil=True)
# Python never calls most compiled functions; leaving out what that needs saves two thirds of their compile time.
inside = _compiler(_nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# Compiled into those that call it: for functions that take less time than to hand them all their arrays.
inlined = _compiler(_nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# For arithmetic in which no number is NaN, and sums may be added up in any order, four or eight numbers at a time.
reordering = _compiler(_nrt=False, fastmath={"reassoc", "nsz", "contract", "arcp", "nnan"})


def pointer(function: Callable[..., Any], *arguments: object) -> Any:
    """Return a function as a value that other compiled functions take, and call with arguments like these."""
    kind: Callable[[object], Any] = numba.typeof
    return _pointer(getattr(function, "py_func", function), tuple(kind(argument) for argument in arguments))


@cache  # loading it takes longer than a short replay
def _pointer(function: Callable[..., Any], types: tuple[Any, ...]) -> Any:
    import_module("numba.experimental.function_type")  # knows pointers; only a compilation loads it by itself
    # What `numba.cfunc` does, with our cache.
    made = _cached(CFunc(function, (types, numba.int64), locals={}, options={"_nrt": False}), function)
    made.compile()
    kind: Callable[[object], Any] = numba.typeof
    made._numba_type_ = kind(made)  # or it would be computed at every call
    return made
