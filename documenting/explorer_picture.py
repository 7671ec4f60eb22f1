"""Takes the picture of the explorer for docs/explore.md: `python -m documenting.explorer_picture`."""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from documenting.page_pictures import FOLDER, chromium
from samestep.experiments import explore
from samestep.experiments.cli.ending import run_command

ROWS = "torch:fsdp", "tf:mirrored"
"""The rows that the picture shows, at the third exchange of the step."""
DIGEST = FOLDER / "explorer.json"
"""The file with the digest of the page when the picture was taken; a test computes it again."""
_EXCHANGE, _WIDTH, _HEIGHT = 3, 1200, 980


def main(arguments: Sequence[str]) -> int:
    """Takes the picture in both color schemes, and stores a digest of what it shows.

    Raises:
        Unavailable: There is no browser.
    """
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        file = Path(scratch, "explore.html")
        explore.main([*ROWS, "--predicted", "--out", str(file)])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=scheme)
            page.goto(file.as_uri())
            for _ in range(_EXCHANGE):
                page.locator("#next").click()
            page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
            page.screenshot(path=FOLDER / f"explorer-{scheme}.png")
        DIGEST.write_text(json.dumps(digest(file.read_text())) + "\n")
    return 0


def digest(page: str) -> str:
    """Returns a digest of what a page shows of both rows and of its own styles; other rows are left out.

    The style sheet of all pages is left out as well, because `page_pictures` notices when it has changed.

    Args:
        page: The text of the page.
    """
    _, _, own = page.rpartition("<style>")
    looks, _, rest = own.partition('<script type="application/json" id="steps">')
    steps, _, script = rest.partition("</script>")
    data = json.loads(steps)
    point = f"{data['devices'][data['start']['devices']]}/{data['widths'][data['start']['width']]}"
    shown = [row["steps"][point] for row in data["rows"] if row["name"] in ROWS]
    return hashlib.sha256(json.dumps([looks, shown, script]).encode()).hexdigest()


if __name__ == "__main__":
    run_command(main)
