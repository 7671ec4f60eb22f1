"""Opens a page in the user's browser."""

import sys
import webbrowser
from pathlib import Path

HELP = "open the page in the browser"


def open_page(path: Path) -> None:
    """Opens a page in the browser; if there is none, prints what to open.

    Args:
        path: The file of the page.
    """
    address = path.resolve().as_uri()
    if not webbrowser.open(address):
        print(f"no browser was found; open {address}", file=sys.stderr)
