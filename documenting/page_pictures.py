"""Takes the pictures of the page for the README and docs/: `python -m documenting.page_pictures [DIRECTORY ...]`.

They show runs that are kept next to them. If directories of comparisons are given, these replace the kept runs.
"""

import contextlib
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from samestep.common.errors import Unavailable
from samestep.experiments.cli.ending import run_command

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from samestep.experiments.page.loaded import Loaded

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
RUNS = FOLDER / "report-runs.tar.xz"
DIGESTS = FOLDER / "report.json"
"""The file with the digest of each section when its picture was taken; a test computes them again."""
SHOWN = ("verdict", "rows", "parity", "losses", "speed", "step-parts", "memory", "wire")
"""The sections that have a picture; the first two are on the pictures of the README."""
_KEPT = ("compare.toml", "config.json", "metrics.jsonl", "result.json", "error.json")
_ALLOWED = frozenset({"busy", "cores"})
"""The confounds that are accepted: the machine had other work, and strategies on one device have one core."""
_WIDTH, _HEIGHT = 1200, 1250


def main(arguments: Sequence[str]) -> int:
    """Keeps the given runs, takes all pictures, and stores digests of what they show.

    Raises:
        Unavailable: There is no browser.
    """
    if arguments:
        keep([Path(directory) for directory in arguments])
    with tempfile.TemporaryDirectory() as scratch:
        loaded = unpack(Path(scratch))
        _take(loaded, Path(scratch, "report.html"))
        DIGESTS.write_text(json.dumps(digests(loaded), indent=1) + "\n")
    return 0


def keep(directories: Sequence[Path]) -> None:
    """Stores the files of comparisons that a report needs."""
    with tarfile.open(RUNS, "w:xz") as archive:
        for directory in directories:
            for file in sorted(path for path in directory.rglob("*") if path.name in _KEPT):
                archive.add(file, directory.name / file.relative_to(directory))


def unpack(scratch: Path) -> "Loaded":
    """Reads the runs that are kept.

    Args:
        scratch: An empty folder to put them into.
    """
    from samestep.experiments.page.loading import load  # imported here, like those below, because it needs NumPy

    with tarfile.open(RUNS) as archive:
        archive.extractall(scratch / "runs", filter="data")
    return load([scratch / "runs"], _ALLOWED)


def digests(loaded: "Loaded") -> Mapping[str, str]:
    """Returns the digest of what each picture shows: the section and the style sheet."""
    from samestep.experiments.page.page import SECTIONS
    from samestep.experiments.page.rendering import HERE

    style = (HERE / "page.css").read_text()
    parts = {name: write(loaded) for name, _, write in SECTIONS if name in SHOWN}
    texts = {name: style + part for name, part in parts.items() if part is not None}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


@contextlib.contextmanager
def chromium() -> Iterator["Browser"]:
    """Makes a context with a browser that takes pictures; it opens only our own files.

    Raises:
        Unavailable: There is no browser.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise Unavailable("playwright is not installed: pip install 'samestep[dev]'.") from None
    if (path := shutil.which("chromium")) is None:
        raise Unavailable("there is no chromium: apt-get install chromium.")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def _take(loaded: "Loaded", file: Path) -> None:
    from samestep.experiments.page.page import page

    file.write_text(page(loaded))
    with chromium() as browser:
        for scheme in ("light", "dark"):
            _shoot(browser, file, scheme)


def _shoot(browser: "Browser", file: Path, scheme: Literal["light", "dark"]) -> None:
    """Takes pictures of the top of the page and, in light colors, of each section up to its first figure."""
    opened = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=scheme)
    opened.goto(file.as_uri())
    opened.screenshot(path=FOLDER / f"report-{scheme}.png")
    for name in SHOWN[2:] if scheme == "light" else ():
        opened.locator(f"#{name} figure ~ figure").evaluate_all("all => all.forEach(each => each.remove())")
        opened.locator(f"#{name}").screenshot(path=FOLDER / f"report-{name}.png")


if __name__ == "__main__":
    run_command(main)
