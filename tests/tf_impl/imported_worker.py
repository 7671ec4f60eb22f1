"""A worker that says whether Keras was imported before it was forked, and how many threads its server has."""

import os
import sys


def main(arguments: list[str]) -> int:
    print("keras" in sys.modules, len(os.listdir(f"/proc/{os.getppid()}/task")))
    return 0
