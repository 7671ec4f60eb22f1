"""The tables of docs/predicting.md: ZeRO's published figures, published models on their meshes, and errors of predictions."""

import re

from samestep.common.cell import Cell
from samestep.common.flags import Scalar
from samestep.common.request import RunConfig
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.published import PUBLISHED
from samestep.experiments.advising.prediction import Assumptions, Prediction, predict_row
from samestep.experiments.cli.command_line import read_request
from samestep.experiments.comparing.quantity import MARK
from samestep.experiments.printing.text import common_unit, github, in_unit, large_number, percent_off

GB = 10**9
"""The bytes of a GB, in which the papers count."""
STAGES = {"torch:ddp": "data", "torch:zero1": "data", "torch:zero2": "shard", "torch:fsdp": "shard"}
"""The rows that stand for ZeRO's stages 0 to 3, with the axis that each takes."""
NUM_RANKS = (4, 64, 1024)
MESHES = (
    ("megatron-7.5b", "torch:hybrid+mesh=data=32,tensor=4"),
    ("llama-65b", "torch:fsdp+mesh=shard=2048"),
    ("llama3-70b", "torch:fsdp+mesh=shard=64"),
    ("llama3-405b", "torch:hybrid+schedule=1f1b+microbatches=32+mesh=shard=64,pipe=16,tensor=8"),
    ("gpt3-175b", "torch:hybrid+schedule=1f1b+microbatches=24+mesh=data=64,pipe=8,tensor=8"),
    ("mt-nlg-530b", "torch:hybrid+schedule=1f1b+microbatches=120+mesh=data=16,pipe=35,tensor=8"),
)
"""Published models, on the meshes of their papers if these name one."""


def predicted(workload: str, cell: str, **given: Scalar) -> Prediction:
    """Predicts a published model with weights in two bytes over NCCL.

    Args:
        workload: The name of the model's workload.
        cell: The row, with its mesh.
        **given: Further fields of the request.
    """
    config: RunConfig = read_request(Cell.parse(cell), {"workload": workload, **given})
    return predict_row(cell, config, Assumptions(backend="nccl", weights="fp16"))


def zero() -> str:
    """Returns the table of ZeRO's stages for 7.5 billion parameters: GB per device by the paper's formula and in our rows."""
    rows = []
    for ranks in NUM_RANKS:
        for cell, axis in STAGES.items():
            found = predicted("zero-7.5b", f"{cell}+mesh={axis}={ranks}", batch_size=1024)
            held = found.ledger.state_bytes or 0
            peak = found.needed_bytes - (found.fullest.activations_bytes or 0)
            formula = found.textbook("state") or 0.0
            gain = 16 * num_params(found.run.workload.model) / formula
            figures = (f"{count / GB:.3g}" for count in (formula, held, peak))
            rows.append([str(ranks), cell, *figures, f"{gain:.1f}x"])
    return github(["ranks", "row", "formula GB", "predicted GB", "with gathered copies GB", "formula's gain"], rows)


def giants() -> str:
    """Returns the table of published models: their parameters, and what a device holds and sends."""
    found = [predicted(*each) for each in MESHES]
    headers, columns = ["model", "parameters", "row", "mesh"], []
    for name, of in {
        "state": lambda row: row.ledger.state_bytes or 0,
        "formula": lambda row: row.textbook("state") or 0,
        "activations": lambda row: row.fullest.activations_bytes or 0,
        "needed": lambda row: row.needed_bytes,
        "sent": lambda row: row.sent_bytes_per_device,
    }.items():
        unit = common_unit(map(of, found))
        headers.append(f"{name} {unit}")
        columns.append([in_unit(of(row), unit) for row in found])
    lines = [
        [row.run.workload.name, large_number(num_params(row.run.workload.model)), row.run.name, str(row.run.mesh)]
        for row in found
    ]
    return github(headers, [line + list(cells) for line, cells in zip(lines, zip(*columns, strict=True), strict=True)])


def sources() -> str:
    """Returns where the sizes of each published model come from."""
    return "\n".join(f"* `{name}`: {workload.source}." for name, workload in PUBLISHED.items())


def errors(page: str) -> str:
    """Returns the table of differences between measured and predicted values in the results of docs/strategies.md.

    Args:
        page: The text of docs/strategies.md.
    """
    table = re.search(r"<!-- results -->(.*)<!-- /results -->", page, re.DOTALL)
    assert table is not None
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[1].splitlines() if line[:1] == "|"]
    headers, _, *rows = lines
    columns = {name.partition(" ")[0]: n for n, name in enumerate(headers)}
    shown = {name: columns[name] for name in ("state", "activations", "sent") if name in columns}
    told = [[row[0], *(_error(row[column]) for column in shown.values())] for row in rows]
    return github(["strategy", *shown], told)


def _error(cell: str) -> str:
    """Returns the difference between the two numbers of a cell, the measured one and the predicted one in parentheses."""
    pair = re.fullmatch(rf"([\d.,]+) \(([\d.,]+)\){MARK}?", cell)
    if pair is None:
        return "not predicted" if cell else ""
    measured, predicted = (float(each.replace(",", "")) for each in pair.groups())
    if measured == predicted or not predicted:
        return "none" if measured else "nothing to send"
    return percent_off(measured, predicted, 1)
