"""Runs scripts one after the other, each in processes that are forked off after torch is imported, and records them."""

import atexit
import gc
import json
import os
import runpy
import socket
import sys
import traceback

import torch
import torch._dynamo  # which every optimizer imports at its first step
import torch.distributed.fsdp
import torch.distributed.tensor.parallel

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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(case: tuple[str, list[str], dict[str, object]], environment: dict[str, str]) -> int:
    if child := os.fork():
        return child
    code = 0
    try:
        os.environ |= environment
        run(*case)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    gc.freeze()  # the recorder looks through all objects of a process: those of this one are none of a script's
    for *case, world in json.loads(sys.argv[1]):
        common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        children = [start(case, {"RANK": str(rank)} | common if world > 1 else {}) for rank in range(world)]
        for child in children:
            if status := os.waitpid(child, 0)[1]:
                sys.exit(f"{case[0]} {case[1]} ended with {status}")
