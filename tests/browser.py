"""Waiting in browser tests: pages forbid `eval`, by which Playwright's own `wait_for_function` polls."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE_S = 60.0  # only ends a hang


def eventually(page: "Page", holds: Callable[[], bool]) -> None:
    """Wait until something holds of a page."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came true"
        page.wait_for_timeout(20)
