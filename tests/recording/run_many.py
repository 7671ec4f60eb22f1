"""Runs scripts one after the other, each in a process that is forked off after torch is imported, and records them."""

import atexit
import json
import os
import runpy
import sys
import traceback

import torch

from samestep.torch_impl.recording import install


def run(script: str, arguments: list[str], options: dict[str, object]) -> None:
    install(json.dumps(options))
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit:
        pass
    finally:
        atexit._run_exitfuncs()


if __name__ == "__main__":
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    for case in json.loads(sys.argv[1]):
        if (child := os.fork()) == 0:
            code = 0
            try:
                run(*case)
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code)
        if status := os.waitpid(child, 0)[1]:
            sys.exit(f"{case[0]} {case[1]} ended with {status}")
