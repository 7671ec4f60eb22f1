"""One browser for all tests of the page, and a page for them to open."""

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samestep.experiments.comparing import stored
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.page.loaded import Facet, Loaded
from samestep.experiments.page.loading import load
from samestep.experiments.page.page import page as write_page
from tests.page import runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED = "SAMESTEP_BROWSER"
"""Set in the environment, it makes a failure of a browser that is missing."""
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
Opened = Callable[..., "Page"]
_IDLE: "dict[Browser, list[Page]]" = {}
"""The windows of a browser that no test has."""


def _lacks() -> str:
    """What keeps this machine from opening a page."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install 'samestep[dev]'"
    return "" if _CHROMIUM else "there is no chromium: apt-get install chromium"


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium; it ends with the module, since tests elsewhere look at the processes that there are."""
    if lacks := _lacks():
        pytest.fail(lacks) if os.environ.get(REQUIRED) else pytest.skip(lacks)
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # as root it refuses to start without this
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=_CHROMIUM, args=flags)
        yield started
        _IDLE.pop(started, None)
        started.close()


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two comparisons and a single run, which was traced."""
    home = tmp_path_factory.mktemp("runs")
    one = runs.single(home / "one", runs.trained("torch:zero1", 500.0))
    runs.trace(one)
    return [runs.comparison(home / "main"), runs.scaling(home / "scaling"), one]


@pytest.fixture(scope="session")
def report(directories: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about them."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(write_page(load(directories)))
    return path


@pytest.fixture
def opened(browser: "Browser", report: Path) -> Iterator[Opened]:
    """Opens the page in a window of its own."""
    with opening(browser, report) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def shown(browser: "Browser", report: Path) -> Iterator["Page"]:
    """The page, for tests that change nothing on it."""
    with opening(browser, report) as open_page:
        yield open_page()


@pytest.fixture(scope="module")
def loaded(directories: list[Path]) -> Loaded:
    """The runs of a page."""
    return load(directories)


@pytest.fixture(scope="module")
def found(directories: list[Path]) -> Comparison:
    """The first comparison."""
    return stored.load(directories[0])


@pytest.fixture(scope="module")
def facet(loaded: Loaded) -> Facet:
    """The first table of the page."""
    return next(loaded.facets())


@contextlib.contextmanager
def opening(browser: "Browser", report: Path) -> Iterator[Opened]:
    """What opens pages; a message of the console or a second request fails the test.

    A page that a test is done with is loaded anew for the next one: a new window takes a second of a core.
    """
    trouble: list[str] = []
    with contextlib.ExitStack() as used:

        def open_page(width: int = 1440, scheme: str = "light", path: Path = report) -> "Page":
            page = used.enter_context(_window(browser))
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(media="null", color_scheme=scheme, reduced_motion="reduce")
            page.mouse.move(0, 0)
            listeners = {
                "console": lambda message: trouble.append(f"console: {message.text}"),
                "pageerror": lambda error: trouble.append(f"error: {error}"),
                "request": lambda request: trouble.append(request.url) if request.url != path.as_uri() else None,
            }
            for event, listener in listeners.items():
                page.on(event, listener)
                used.callback(page.remove_listener, event, listener)
            page.goto(path.as_uri())
            return page

        yield open_page
    assert trouble == []


@contextlib.contextmanager
def _window(browser: "Browser") -> Iterator["Page"]:
    """A window that no test has at the moment; one that ended well is handed on."""
    idle = _IDLE.setdefault(browser, [])
    page = idle.pop() if idle else browser.new_page()
    try:
        yield page
    except BaseException:
        page.close()
        raise
    idle.append(page)
