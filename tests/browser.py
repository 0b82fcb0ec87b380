"""Browser tests: one tab for all; and waiting, since pages forbid `eval`, by which `wait_for_function` polls."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

PATIENCE_S = 60.0  # only ends a hang
WIDE: "ViewportSize" = {"width": 1400, "height": 900}
_tabs: WeakKeyDictionary["Browser", "Page"] = WeakKeyDictionary()


def eventually(page: "Page", holds: Callable[[], bool]) -> None:
    """Wait until something holds of a page."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came true"
        page.wait_for_timeout(20)


def shared_tab(browser: "Browser", viewport: "ViewportSize" = WIDE, color_scheme: str = "light") -> "Page":
    """Return the one tab that tests share: another one takes a window and a process, more than most tests do."""
    if browser not in _tabs:
        _tabs[browser] = browser.new_page()
    page = _tabs[browser]
    page.set_viewport_size(viewport)
    page.emulate_media(color_scheme=color_scheme)  # type: ignore[arg-type]
    page.mouse.move(0, 0)
    return page


def leave(page: "Page") -> None:
    """Leave nothing of a server's pages in a shared tab for the next test."""
    # To stay with the server spares the process that `about:blank` would get.
    page.goto(page.evaluate("location.origin") + "/no-such-page")
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.context.clear_cookies()
