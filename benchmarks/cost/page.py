"""Measures everything that docs/cost.md shows on one build, and writes the page's tables from what the commands print.

`python -m benchmarks.cost.page [--only PART] [--long]` takes a quarter of an hour on two cores; nothing else should run then.
Each part is a separate command, and is stopped if it takes much longer than expected. The output is kept in `runs/cost/`, so
parts can be measured one by one. The page names the commits of its tables. With `--long`, runs grow to a million steps,
comparisons to 999 rows, and the steps of all rows are compared, which takes another hour.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cost.growth import BARE
from documenting.readme import replaced

ROOT = Path(__file__).parents[2]
PAGE, STORE = ROOT / "docs" / "cost.md", ROOT / "runs" / "cost"
ROWS = ("torch:single", "torch:ddp", "torch:fsdp", "tf:single", "tf:mirrored", "tf:multi_worker_mirrored")
STEPPED = ("torch:single", "torch:ddp", "tf:single", "tf:multi_worker_mirrored")
STARTED = ("torch:ddp", "tf:multi_worker_mirrored")
LONG = {"steps": 5400, "rows": 900}
"""The time limits of parts with `--long`, in seconds."""


def parts(long: bool) -> Mapping[str, tuple[int, Sequence[str]]]:
    """Returns, for each part, its time limit in seconds and its command, in which STORE stands for a new file.

    Args:
        long: Whether `--long` was given.
    """
    growth = "benchmarks.cost.growth --store STORE"
    parameters = [
        *growth.split(),
        *(word for axis in (BARE, "parameters, --no-parity", "parameters") for word in ("--only", axis)),
    ]
    most = {"steps": 10**6 if long else 10**5, "rows": 999 if long else 300}
    return {
        "overhead": (1500, ["benchmarks.cost.overhead"])
        if long
        else (300, ["benchmarks.cost.overhead", *STEPPED, "--pairs", "7"]),
        "memory": (240, ["benchmarks.cost.memory", *ROWS, "--steps", "10000", "--store", "STORE"]),
        "parameters": (180, [*parameters, "--most", "50000000"]),
        **{
            name: (LONG[name] if long else 240, f"{growth} --only {name} --most {size}".split())
            for name, size in most.items()
        },
        "devices": (60, f"{growth} --only devices".split()),
        "devices-by-hand": (90, ["benchmarks.cost.growth_devices", "--devices", "2,4,8"]),
        "keras-fit": (180, ["benchmarks.cost.keras_fit"]),
        "report": (90, ["benchmarks.cost.report"]),
        "launch": (180, ["benchmarks.cost.launch", *STARTED]),
    }


def main() -> None:
    """Measures the parts, then writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost.page", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", choices=parts(False), action="append")
    parser.add_argument("--long", action="store_true")
    asked = parser.parse_args()
    STORE.mkdir(parents=True, exist_ok=True)
    for name, (seconds, words) in parts(asked.long).items():
        if name in (asked.only or parts(False)):
            taken = take(words, seconds)
            (STORE / f"{name}.json").write_text(json.dumps(taken))
            lost = "" if taken["text"] else ", and not measured: the page keeps what it says"
            print(f"{name}: {taken['seconds']:.0f} s{lost}", flush=True)
    PAGE.write_text(written(PAGE.read_text(), read()))


def take(words: Sequence[str], seconds: float) -> dict[str, object]:
    """Runs the command of a part; returns its output (no text if it failed), its duration and the commit.

    Args:
        words: The module and its arguments.
        seconds: The time limit.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        line = [sys.executable, "-m", *(word.replace("STORE", f"{scratch}/store.jsonl") for word in words)]
        with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as command:
            try:
                text, _ = command.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(command.pid, signal.SIGKILL)
                text = ""
    text = "" if command.returncode else text
    head = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    shown = " ".join(f'"{word}"' if " " in word else word for word in words).replace(" --store STORE", "")
    return {"text": text.strip(), "command": shown, "commit": head.stdout.strip(), "seconds": time.monotonic() - start}


def read() -> dict[str, dict[str, object]]:
    """Returns the measured parts, by name."""
    kept = {name: STORE / f"{name}.json" for name in parts(False)}
    return {name: json.loads(path.read_text()) for name, path in kept.items() if path.exists()}


def written(page: str, taken: Mapping[str, Mapping[str, object]]) -> str:
    """Returns the page with the parts in their places.

    Args:
        page: The text of the page.
        taken: The parts, by name; other parts and those that failed stay as they are in the page.
    """
    for name, part in taken.items():
        if not part["text"]:
            continue
        page = replaced(page, name, f"`python -m {part['command']}`, at commit {part['commit']}:\n\n{part['text']}")
    return page


if __name__ == "__main__":
    main()
