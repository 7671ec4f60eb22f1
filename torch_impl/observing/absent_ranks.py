"""Observes a step of rank 0 without the other ranks: `python -m samestep.torch_impl.observing.absent_ranks DIR`.

DIR holds the request. torch's backend "fake" completes every collective at once and sends nothing. So the losses are
meaningless, but the tensors of rank 0, its messages and their groups are those of a run with all ranks. It prints JSON.
"""

import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path

import torch

from samestep.common.batch import batches
from samestep.common.ledger import exchanges_of
from samestep.common.run import parse_prediction
from samestep.common.runtime.directory import read_config
from samestep.common.strategy import Run
from samestep.common.workload.data.casting import in_dtype
from samestep.common.workload.data.dataset import load
from samestep.torch_impl.devices import ABSENT


def main() -> None:
    """Prints what rank 0 sends in a step and the bytes of its state, or why torch cannot take it."""
    run = parse_prediction(read_config(Path(sys.argv[1])))
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(run.num_devices), ABSENT: "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    try:
        found = observe(run)
    except (RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines() or ["it says nothing"]
        found = {"why_not": f"torch {torch.__version__} says {type(error).__name__}: {said[0][:200]}"}
    print(json.dumps(found), flush=True)
    os._exit(0)  # leaving the group would wait for ranks that do not exist


def observe(run: Run) -> dict[str, object]:
    """Observes one step as rank 0.

    Args:
        run: The run.

    Returns:
        The "exchanges" and the "state_bytes" of rank 0.
    """
    split = in_dtype(load(run.workload.data), run.dtype)
    program = importlib.import_module(run.module).build(run)
    program.observe(next(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed)))
    (footprint, *_) = program.footprint()
    exchanges = [dataclasses.asdict(each) for each in exchanges_of(program.sends())]
    return {"exchanges": exchanges, "state_bytes": footprint.state_bytes}


if __name__ == "__main__":
    main()
