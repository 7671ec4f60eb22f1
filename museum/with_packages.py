"""Runs a script with packages of the museum in front of all others: `python museum/with_packages.py NAME==1.0 SCRIPT ...`."""

import runpy
import sys
from pathlib import Path

OVERLAYS = Path(__file__).parents[1] / ".museum" / "overlays"


def main() -> None:
    """Runs the script in this process."""
    packages, script, *arguments = sys.argv[1:]
    sys.path[:1] = [str(OVERLAYS / package) for package in packages.split(",") if package]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
