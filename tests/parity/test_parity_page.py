"""docs/parity.md counts what docs/parity.csv holds, and a page of the site filters it."""

import csv
import functools
import re
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from documenting.site import FILTER
from tests.parity import products
from tests.parity.products import CELLS, HEADERS, PAGE


def cells() -> list[dict[str, str]]:
    with CELLS.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert list(found[0]) == HEADERS
    return found


def test_the_page_counts_every_cell() -> None:
    counted = re.findall(r"^\| (\w+:\w+) +\| (\d+) +\| (\d+) +\| (\d+) ", PAGE.read_text(), re.MULTILINE)
    for strategy, *numbers in counted:
        took = [each["same step"] for each in cells() if each["strategy"].partition("+")[0] == strategy]
        assert list(map(int, numbers)) == [len(took), took.count("yes"), took.count("NO")]
    assert sum(int(number) for _, number, *_ in counted) == len(cells())


def test_a_store_that_lacks_cells_leaves_the_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "STORE", tmp_path)
    written: list[object] = []
    monkeypatch.setattr(products, "write_cells", lambda plain, techniques: written.append(len(plain)))
    few = products.cells()[:3]
    monkeypatch.setattr(products, "cells", lambda: few)
    for cell in few:
        products.write_page()
        assert not written
        cell.stored.parent.mkdir(parents=True, exist_ok=True)
        cell.stored.write_text('{"passed": true, "max_relative_loss": 0.0, "max_absolute_weight": 0.0}')
    products.write_page()
    assert written == [3]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_the_site_filters_the_cells(tmp_path: Path) -> None:
    (tmp_path / "parity.csv").write_bytes(CELLS.read_bytes())
    (tmp_path / "parity.html").write_bytes(FILTER.read_bytes())
    handler = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/parity.html")
        page.fill("#cells-filter", "torch:fsdp adamw data=2,shard=2")
        page.wait_for_function("document.getElementById('cells-found').value && document.querySelector('#cells td')")
        wanted = [
            [*each.values()]
            for each in cells()
            if all(word in " ".join(each.values()) for word in ("torch:fsdp", "adamw", "data=2,shard=2"))
        ]
        lines = page.evaluate(
            "[...document.querySelectorAll('#cells tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert 0 < len(wanted) <= 100 and lines == wanted
        browser.close()
        server.shutdown()
