"""Observes a step without the other ranks, and compares what it sends and keeps with the prediction.

`python -m benchmarks.predicting.fake_ranks [CELL ...]` does for several cells what `samestep predict CELL --observe` does for
one.
"""

import argparse
from collections.abc import Sequence

from samestep.common.cell import Cell
from samestep.common.errors import SamestepError
from samestep.common.request import RunConfig
from samestep.experiments.advising.forecast import forecast
from samestep.experiments.advising.prediction import Assumptions

WORKLOAD, BATCH = "synthetic-gpt+layers=2+width=512+heads=8+context=16", 512
CELLS = (
    *(f"torch:fsdp+mesh=shard={n}" for n in (8, 64, 512)),
    *(f"torch:fsdp+mesh=data={n // 8},shard=8" for n in (64, 512)),
    "torch:tp+mesh=tensor=8",
    "torch:hybrid+mesh=shard=8,tensor=8",
    "torch:ddp+mesh=data=64",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Observes every cell, and prints each result as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    print("| cell | ranks | quantity | observed | predicted |\n|---|---|---|---|---|", flush=True)
    for cell in parser.parse_args(arguments).cells:
        for line in lines(cell):
            print(f"| `{cell}` | {line} |", flush=True)


def lines(cell: str) -> list[str]:
    """Returns the lines of a cell, without the cell itself."""
    asked = Cell.parse(cell)
    base = asked.apply_to(RunConfig(workload=WORKLOAD, optimizer="adamw", batch_size=BATCH))
    try:
        found = forecast(asked, base, Assumptions(), observe=True)
    except SamestepError as error:
        return [f"| {error} | |"]
    (row,) = found.rows
    assert found.observed is not None
    return [
        f"{row.num_devices} | {each.name} | {each.observed} | {each.predicted}" for each in found.observed.against(row)
    ]


if __name__ == "__main__":
    main()
