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
    """What opens pages; a message of the console or a second request fails the test."""
    pages = []
    trouble: list[str] = []

    def open_page(width: int = 1440, scheme: str = "light", path: Path = report) -> "Page":
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
        pages.append(page)
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()
    assert trouble == []
