"""Runs re-enactments in processes that are forked off one that has torch, which takes longer to import than they run."""

import dataclasses
import gc
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch
import torch._dynamo  # which every optimizer imports at its first step
import torch.nn.parallel

from samestep.common.errors import WorkerFailed
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.start import prepared
from samestep.torch_impl.recording import install

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")


def fork_off(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
    """Records `python -m MODULE WORD...`, with torch.distributed.run in front or not: a `RunCommand` without a new interpreter.

    Args:
        command: Its words.
        options: How it is recorded.
        directory: Ignored: a module is found from everywhere.
        is_quiet: Ignored: the modules print nothing.

    Raises:
        WorkerFailed: It failed.
    """
    is_many = tuple(command[1:4]) == TORCHRUN
    world, words = (int(command[4]), command[5:]) if is_many else (1, command[1:])
    full = dataclasses.replace(options, out=str(prepared(Path(options.out))), command=tuple(command))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(world):
        child = os.fork()
        if not child:
            _become(words[1], words[2:], full, group | {"RANK": str(rank)} if is_many else {})
        children.append(child)
    ended = [os.waitpid(child, 0)[1] for child in children]
    if any(ended):
        raise WorkerFailed(f"'{' '.join(command)}' ended with {ended}")


def _become(module: str, words: Sequence[str], options: RecordOptions, environment: dict[str, str]) -> None:
    """Turns this process into the command, and ends it."""
    code = 1
    try:
        os.environ.update(environment)
        sys.argv = [module, *words]
        end = install(options.to_json())
        runpy.run_module(module, run_name="__main__")
        end()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


torch.set_num_threads(1)  # a pool of threads would not survive a fork
gc.freeze()  # the recorder looks through all objects of a process: those of this one are none of a script's
