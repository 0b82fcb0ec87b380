"""How functions are compiled: once for all processes, on arrays that Python made.

Numba takes a second to import. So this module, and every kernel that uses it, is imported where it is used.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

# Compiled once for all processes. Without Numba's counting of references, which takes most of the time when arrays
# come in a tuple: Python holds on to all of them, and nothing in a kernel makes new ones.
OPTIONS: dict[str, Any] = {"cache": True, "_nrt": False}


def compiled(function: F) -> F:
    """Compile a function."""
    return cast("F", numba.njit(**OPTIONS)(function))
