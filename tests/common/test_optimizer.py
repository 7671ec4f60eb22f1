"""What rows ask of an optimizer: a made-up one that is of whole matrices."""

import dataclasses
from typing import ClassVar

import pytest

from samestep.common.errors import ConfigError
from samestep.common.optimizer import check_optimizer
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.optimizers.sgd import Sgd


@dataclasses.dataclass(frozen=True)
class OfMatrices(Sgd):
    """Says that it updates whole matrices."""

    is_elementwise: ClassVar = False


def checked(optimizer: Sgd, framework: str, strategy: str, **fields: object) -> None:
    run = parse(RunConfig(framework, strategy, "synthetic-mlp", batch_size=48, **fields))
    check_optimizer(dataclasses.replace(run, optimizer=optimizer))


CUT = [
    ("torch", "fsdp", {"devices": 2}),
    ("torch", "zero2", {"devices": 2}),
    ("torch", "tp", {"devices": 2}),
    ("torch", "deepspeed", {"devices": 2}),
    ("torch", "hybrid", {"mesh": "pipe=1,shard=2"}),
    ("tf", "dtensor", {"mesh": "tensor=2"}),
    ("tf", "parameter_server", {"devices": 2}),
]
WHOLE = [
    ("torch", "single", {}),
    ("torch", "ddp", {"devices": 2}),
    ("torch", "zero1", {"devices": 2}),
    ("torch", "pp", {"devices": 2}),
    ("torch", "fsdp", {"devices": 1}),
    ("torch", "hybrid", {"mesh": "pipe=2,data=2"}),
    ("tf", "mirrored", {"devices": 2}),
    ("tf", "dtensor", {"mesh": "data=2"}),
    ("numpy", "oracle", {"dtype": "float64"}),
]


@pytest.mark.parametrize(("framework", "strategy", "fields"), CUT, ids=lambda value: str(value))
def test_whole_matrices_are_refused_where_parameters_are_cut(framework: str, strategy: str, fields: dict) -> None:
    with pytest.raises(
        ConfigError, match=f"updates whole matrices, which {framework}:{strategy} cuts; choose sgd, adamw or lion"
    ):
        checked(OfMatrices(0.1), framework, strategy, **fields)
    checked(Sgd(0.1), framework, strategy, **fields)


@pytest.mark.parametrize(("framework", "strategy", "fields"), WHOLE, ids=lambda value: str(value))
def test_whole_matrices_are_taken_where_parameters_are_whole(framework: str, strategy: str, fields: dict) -> None:
    checked(OfMatrices(0.1), framework, strategy, **fields)
