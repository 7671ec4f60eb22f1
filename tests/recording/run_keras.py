"""Runs scripts of Keras one after the other and records them, each in a process forked off after TensorFlow is imported."""

import atexit
import json
import os
import runpy
import sys
import traceback

from samestep.common.runtime.imports import import_modules


def run(script: str, arguments: list[str], options: dict[str, object]) -> None:
    from samestep.tf_impl.recording import install

    install(json.dumps(options))
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    atexit._run_exitfuncs()


if __name__ == "__main__":
    import_modules(["keras", "samestep.tf_impl.recording"])  # they stay shared with the processes of the scripts
    assert sys.modules["keras"].backend.backend() == "tensorflow"
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
