"""Observes a step on ranks that are not there, and holds what it sends and keeps against the prediction.

`python -m benchmarks.fake_ranks [CELL ...]`: torch's process group "fake" answers every collective at once, with nothing. So
losses are meaningless, and the tensors, what is sent and in which groups are those of rank 0 of so many.
"""

import argparse
import contextlib
import importlib
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from types import ModuleType
from unittest import mock

from samestep.common.batch import batches
from samestep.common.cell import Cell
from samestep.common.ledger import Exchange, exchanges_of
from samestep.common.program import Hardware
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import load

WORKLOAD, BATCH = "synthetic-gpt+layers=2+width=512+heads=8+context=16", 512
CELLS = (
    *(f"torch:fsdp+mesh=shard={n}" for n in (8, 64, 512)),
    *(f"torch:fsdp+mesh=data={n // 8},shard=8" for n in (64, 512)),
    "torch:tp+mesh=tensor=8",
    "torch:hybrid+mesh=shard=8,tensor=8",
    "torch:ddp+mesh=data=64",
)
HEADINGS = ("cell", "ranks", "exchanges a step", "predicted", "state of a device", "predicted")


def run_of(cell: str) -> Run:
    """Returns the run that a cell stands for."""
    return parse(Cell.parse(cell).apply_to(RunConfig(workload=WORKLOAD, steps=3, optimizer="adamw", batch_size=BATCH)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Observes every cell, and prints a row of each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for cell in parser.parse_args(arguments).cells:
        run = run_of(cell)
        predicted = run.strategy.cost(run, "gloo")
        state = predicted.state_bytes or 0
        seen = observe(cell)
        found = (seen, "") if isinstance(seen, str) else (spell(seen[0]), f"{seen[1]:,}")
        row = (f"`{cell}`", str(run.num_devices), found[0], spell(predicted.exchanges), found[1], f"{state:,}")
        print(f"| {' | '.join(row)} |", flush=True)


def spell(exchanges: Sequence[Exchange]) -> str:
    """Returns exchanges as text: their names, how often, and how many bytes."""
    return ", ".join(f"{each.name} {each.count_per_step} x, {each.bytes_per_step:,} B" for each in exchanges)


def observe(cell: str) -> tuple[tuple[Exchange, ...], int] | str:
    """Returns what rank 0 sends in a step and the bytes of its state, or why torch cannot do it; in a process of its own."""
    here, there = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_take, args=(cell, there))
    process.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        return f"the process ended with {process.exitcode}"
    finally:
        process.join()


def _take(cell: str, answers: Connection) -> None:
    import torch  # here: each process has a group of its own

    try:
        run = run_of(cell)
        split = load(run.workload.data)
        with _joined(run) as strategy:
            program = strategy.build(run)
            program.observe(next(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed)))
            sends, (footprint, *_) = program.sends(), program.footprint()
        answers.send((exchanges_of(sends), footprint.state_bytes))
    except (RuntimeError, ValueError, NotImplementedError) as error:
        answers.send(f"{type(error).__name__}: {str(error).splitlines()[0][:120]} (torch {torch.__version__})")
    sys.stdout.flush()
    os._exit(0)


@contextlib.contextmanager
def _joined(run: Run) -> Iterator[ModuleType]:
    """Yields the strategy's module, whose program joins a group that is not there."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def join_group(run: Run, device: object) -> Hardware:
        dist.init_process_group("fake", rank=0, world_size=run.num_devices, store=FakeStore())
        return Hardware(note="ranks that are not there", backend="gloo")

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(run.num_devices)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    strategy = importlib.import_module(run.module)
    ours = [each for name, each in sys.modules.items() if name.startswith("samestep.torch_impl")]
    with contextlib.ExitStack() as stack:
        for home in (each for each in ours if hasattr(each, "join_group")):
            stack.enter_context(mock.patch.object(home, "join_group", join_group))
        yield strategy


if __name__ == "__main__":
    main()
