"""Segments of a user's model that hand several tensors on, and that are named after parameters of the root."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

from samestep.common.errors import ConfigError
from samestep.common.workload.declaration import Model
from samestep.common.workload.models.spec import Segment
from samestep.torch_impl.describing.segments import describe_segments
from samestep.torch_impl.models.segmented import remove
from tests.cells import slow
from tests.conftest import RunCell
from tests.own import odd_zoo

pytestmark = pytest.mark.torch
ZOO = Path(odd_zoo.__file__)
UNET = {"model": f"{ZOO}:UNET", "data": f"{ZOO.with_name('torch_zoo.py')}:points"}
CELLS = ["pp+schedule=zbv_zero_bubble", "mp", "rpc", "hybrid+mesh=pipe=2,shard=2"]
OTHERS = ["pp", "pp+schedule=dualpipev", "pp+schedule=interleaved_zero_bubble", "hybrid+mesh=pipe=2,data=2"]


@pytest.mark.parametrize("cell", [*CELLS, *slow(*OTHERS)])
def test_a_skip_connection_goes_past_stages(run_cell: RunCell, cell: str) -> None:
    devices = {} if "mesh" in cell else {"devices": 2}
    result = run_cell(f"torch:{cell}", "digits-mlp", dtype="float64", steps=6, **devices, **UNET)
    assert result.parity.passed, result.parity.reason
    sent = sum(row.sent_bytes_per_step for row in result.processes)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03, abs=2048 if "rpc" in cell else 0)


Segments = Mapping[str, Callable[..., object]]


def described(change: Callable[[nn.Module], Segments]) -> tuple[Segment, ...]:
    torch.manual_seed(0)
    module = odd_zoo.unet().double().eval()
    x = torch.randn(2, 6, dtype=torch.float64)
    with torch.no_grad():
        outputs = module(x)
    return describe_segments(Model(segments={"torch": change}), module, x, outputs, 100, "net.py")


def test_what_is_handed_on_is_described() -> None:
    first, second, third, last = described(odd_zoo.unet_segments)
    assert first.several == ((16,), (1,)) and first.outputs == (17,)
    assert second.several == ((16,), (1,), (16,)) and second.outputs == (33,)
    assert third.outputs == (32,) and not third.several and last.outputs == (2,)
    assert first.parameters == ("scale", "layers/0/kernel", "layers/0/bias")
    assert third.parameters == ("shift", "layers/2/kernel", "layers/2/bias")


def first_returns(change: Callable[[torch.Tensor, torch.Tensor], object]) -> Callable[[nn.Module], Segments]:
    def segments(model: nn.Module) -> Segments:
        return {**odd_zoo.unet_segments(model), "layers.0+scale": lambda x: change(*model.first(x))}

    return segments


def renamed(old: str, new: str) -> Callable[[nn.Module], Segments]:
    def segments(model: nn.Module) -> Segments:
        return {new if name == old else name: each for name, each in odd_zoo.unet_segments(model).items()}

    return segments


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            first_returns(lambda x, mask: {"x": x}),
            "segment 'layers/0.scale' returns dict; return a tensor or a plain tuple",
        ),
        (first_returns(lambda x, mask: [x, mask]), "returns list; return"),
        (first_returns(lambda x, mask: (x, (mask,))), "returns a tuple of Tensor, tuple; return"),
        (first_returns(lambda x, mask: (x,)), "returns a tuple of Tensor; return"),
        (first_returns(lambda x, mask: ()), "returns a tuple of nothing; return"),
        (first_returns(lambda x, mask: None), "returns NoneType; return"),
        (first_returns(lambda x, mask: (x, mask.long())), r"returns torch.int64; stages exchange only real numbers"),
        (first_returns(lambda x, mask: (x, mask > 0)), r"returns torch.bool"),
        (first_returns(lambda x, mask: (x, mask.sum())), r"returns shape \[\] for 2 examples"),
        (first_returns(lambda x, mask: (x, mask.T)), r"returns shape \[1, 2\] for 2 examples"),
        (lambda model: {"layers.0+scale": model.first}, "no segment is named after|theirs is a tuple"),
        (lambda model: [model.first], "the function given as segments returned list; return functions by name"),
        (lambda model: {}, "the function given as segments returned dict; return functions by name"),
        (lambda model: {"out": 5}, "the function given as segments returned dict; return functions by name"),
        (
            renamed("layers.0+scale", "layers.0"),
            "no segment is named after scale or its module",
        ),
        (renamed("layers.0+scale", "layers.0+scales"), "unknown module or parameter.*Did you mean 'scale'"),
    ],
)
def test_what_cannot_be_handed_on_is_refused_in_one_line(change: Callable[[nn.Module], Segments], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        described(change)


def test_a_parameter_is_taken_out_of_a_model() -> None:
    model = odd_zoo.unet()
    remove(model, "scale")
    remove(model, "layers.1.bias")
    remove(model, "out")
    assert list(dict(model.named_parameters())) == [
        *("shift", "layers.0.weight", "layers.0.bias", "layers.1.weight"),
        *("layers.2.weight", "layers.2.bias"),
    ]
