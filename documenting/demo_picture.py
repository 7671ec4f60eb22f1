"""Draws `samestep demo` as it ran, line by line, for the README: `python -m documenting.demo_picture`."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path

from samestep.experiments.cli.ending import run_command

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "demo.svg"
COLUMNS, FONT, LINE = 80, 14, 20
"""Characters of a line, and the heights of a character and of a line in pixels."""
_ADVANCE = 8.43
"""The width of a character of 14 pixels in the usual monospaced fonts."""
PROMPT = "$ samestep demo"
_MOST_SECONDS, _PAUSE = 10.0, 6.0
"""The longest duration of the picture on any machine, and how long its last line stays, in seconds."""
_STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; white-space: pre; }
rect { fill: #f6f8fa; stroke: #d1d9e0; }
.yes { fill: #1a7f37; } .no { fill: #cf222e; font-weight: bold; } .prompt { font-weight: bold; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } rect { fill: #151b23; stroke: #3d444d; } .yes { fill: #3fb950; } .no { fill: #f85149; }
}
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the demo and writes the picture."""
    PICTURE.write_text(draw(watch()))
    return 0


def watch() -> list[tuple[float, str]]:
    """Runs the demo in 80 columns; returns each line with the seconds after which it was printed."""
    began, lines = time.monotonic(), [(0.0, PROMPT)]
    line = [sys.executable, "-u", "-m", "samestep", "demo"]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": str(COLUMNS)}
    ) as process:
        for printed in process.stdout or ():
            lines.append((time.monotonic() - began, printed.rstrip("\n")))
    return lines


def draw(lines: Sequence[tuple[float, str]]) -> str:
    """Returns the picture: a terminal whose lines appear one by one, in a loop, or all at once if motion is reduced.

    Args:
        lines: Each line with the seconds after which it appears.
    """
    last = lines[-1][0] or 1.0
    scale = min(1.0, _MOST_SECONDS / last)
    total = last * scale + _PAUSE
    width, height = int(COLUMNS * _ADVANCE) + 2 * FONT, len(lines) * LINE + 2 * FONT
    drawn = "\n".join(
        f'<text class="l{n} {_kind(text)}" x="{FONT}" y="{FONT + (n + 1) * LINE - 5}">{escape(text)}</text>'
        for n, (_, text) in enumerate(lines)
    )
    moves = "\n".join(
        f".l{n} {{ animation: l{n} {total:.1f}s step-end infinite; }}\n"
        f"@keyframes l{n} {{ 0% {{ opacity: 0; }} {100 * seconds * scale / total:.2f}% {{ opacity: 1; }} }}"
        for n, (seconds, _) in enumerate(lines)
        if seconds
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        f"<title>samestep demo: two rows take the same step; a mistake in the third is found and named</title>\n"
        f"<style>{_STYLE}@media (prefers-reduced-motion: no-preference) {{\n{moves}\n}}\n</style>\n"
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n{drawn}\n</svg>\n'
    )


def shown(picture: str) -> list[str]:
    """Returns the lines of the output that a picture shows."""
    return [unescape(text) for text in re.findall(r"<text [^>]*>(.*)</text>", picture)]


def _kind(text: str) -> str:
    if text == PROMPT:
        return "prompt"
    return "no" if "NOT the same step" in text else "yes" if text.endswith(" same step") else ""


if __name__ == "__main__":
    run_command(main)
