"""Runs re-enactments in processes that are forked off one that has torch, which takes longer to import than they run."""

import dataclasses
import gc
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch._dynamo  # which every optimizer imports at its first step
import torch.nn.parallel

from museum.forks import run_forked
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

    def run(rank: int) -> object:
        sys.argv = list(words[1:])
        end = install(full.to_json())
        kept = runpy.run_module(words[1], run_name="__main__")
        end()
        return kept

    if not run_forked(run, world, is_group=is_many):
        raise WorkerFailed(f"a process of '{' '.join(command)}' failed")


torch.set_num_threads(1)  # a pool of threads would not survive a fork
gc.freeze()  # the recorder looks through all objects of a process: those of this one are none of a script's
