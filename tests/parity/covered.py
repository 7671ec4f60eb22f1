"""What `make test` runs of the product of steps, models, features, techniques and optimizers: pairs."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.optimizers.table import OPTIMIZERS
from tests.cells import SIZED, row_of, sized, takes, traced_once
from tests.covering import Row, cover

FILE = Path(__file__).with_suffix(".txt")
WAYS = {
    "torch": {
        "whole": ("torch:ddp", "torch:single", "torch:c10d", "torch:dp", "torch:ddp+devices=3"),
        "shards": ("torch:fsdp", "torch:zero1", "torch:zero2", "torch:fsdp+mesh=data=2,shard=2"),
        "stages": ("torch:pp", "torch:mp", "torch:pp+schedule=zbv_zero_bubble", "torch:pp+schedule=1f1b+devices=4"),
        "calls": ("torch:rpc",),
        "servers": ("torch:rpc_parameter_server",),
        "tensors": ("torch:tp", "torch:tp+sequence_parallel=true"),
        "stages of others": tuple(f"torch:hybrid+mesh=pipe=2,{axis}=2" for axis in ("shard", "data", "tensor")),
        "positions": ("torch:cp", "torch:cp+mesh=data=2,context=2"),
        "experts": ("torch:ep", "torch:ep+mesh=data=2,expert=2"),
    },
    "tf": {
        "whole": ("tf:mirrored", "tf:single", "tf:multi_worker_mirrored", "tf:central_storage"),
        "servers": ("tf:parameter_server", "tf:parameter_server+parameter_servers=2"),
        "tensors": ("tf:dtensor+mesh=tensor=2", "tf:dtensor", "tf:dtensor+mesh=data=2,tensor=2", "tf:tpu"),
        "positions": ("tf:context",),
        "experts": ("tf:expert",),
    },
}
"""Framework -> way of adding up over devices -> the steps that do. DeepSpeed's are in `tests/torch_impl/test_deepspeed.py`."""
COMPRESSED = (
    *(f"+compress={method}" for method in ("int8", "fp16", "bf16")),
    "+compress=powersgd+compress_rank=2+compress_warmup_steps=3",
)
ALONE = ("+local_steps=3+outer_rate=0.7+outer_momentum=0.9", "+local_steps=3")
FURTHER = tuple(f"+optimizer={name}" for name in OPTIMIZERS if name != "sgd")
OTHERS = {
    "model": tuple(SIZED),
    "activation": ("", "+activation=relu"),
    "pooling": ("", "+pooling=max"),
    "norm": ("", "+norm=batch", "+norm=batch+batch_norm=sync"),
    "tied": ("", "+tied=true"),
    "dropout": ("", "+dropout=0.1"),
    "ignored": ("", "+ignored=0.3"),
    "style": ("", "+style=llama+key_heads=2"),
    "experts": ("", "+experts=4+balance=0", "+experts=4+balance=0.1"),
    "accumulation": ("", "+accumulation_steps=2"),
    "clipping": ("", "+clip_norm=0.1"),
    "rates": ("", "+learning_rate_schedule=cosine+warmup_steps=3"),
    "recomputing": ("", "+recompute=true"),
    "vectors": ("", "+decayed=matrices+vector_rate=4"),
    "exchange": ("", *COMPRESSED, *ALONE, "+fixed_order=4"),
    "optimizer": ("+optimizer=sgd", *FURTHER),
}
"""Factor -> its values, each as a cell spells it."""
KINDS = {
    **{step: way for ways in WAYS.values() for way, steps in ways.items() for step in steps},
    **{value: name for name in ("experts", "exchange") for value in OTHERS[name] if value},
    **dict.fromkeys(FURTHER, "another optimizer"),
    "+optimizer=sgd": "",
}
"""Value -> its kind: each value is run, and of each kind one with all else that is not as usual, which has no kind."""


def config_of(model: str, cell: str) -> RunConfig:
    """Returns the request of a line of the file, complete."""
    workload = traced_once(cell.partition(":")[0], sized(row_of(cell), model))
    return Cell.parse(cell).apply_to(RunConfig(workload=workload, batch_size=48, steps=6, parity=True))


def _spelled(row: Row) -> str:
    step, info = row["step"], row_of(row["step"])
    devices = "" if "devices=" in step or "mesh=" in step or not info.axes else "+devices=2"
    others = "".join(row.get(name, "") for name in OTHERS if name != "model")
    return f"{step}{devices}{others}+dtype={info.dtypes[-1]}"


@functools.cache
def _is_taken(framework: str, row: frozenset[tuple[str, str]]) -> bool:
    given = dict(row)
    if "model" not in given:
        return any(_is_taken(framework, row | {("model", model)}) for model in SIZED)
    given = {"step": next(iter(WAYS[framework]["whole"])), **given}
    if not takes(row_of(given["step"]), given["model"]):
        return False
    try:
        parse(config_of(given["model"], _spelled(given)))
    except ConfigError:
        return False
    return True


def found(framework: str) -> list[tuple[str, str]]:
    """Computes the (model, cell) of every row of a framework anew, which takes half a minute."""
    factors: Mapping[str, Sequence[str]] = {"step": [*sum(WAYS[framework].values(), ())], **OTHERS}
    rows = cover(factors, KINDS, lambda row: _is_taken(framework, frozenset(row.items())))
    return [(row["model"], _spelled(row)) for row in rows]


if __name__ == "__main__":
    FILE.write_text("".join(f"{model} {cell}\n" for framework in WAYS for model, cell in found(framework)))
