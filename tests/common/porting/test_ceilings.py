"""Activations that stop at a number on one side are told where nothing of the batch came that far."""

import dataclasses

import numpy as np
import pytest

from samestep.common.porting.ceilings import notes_on_ceilings
from samestep.common.porting.model_trace import LayerCall


@dataclasses.dataclass
class Pair:
    source: LayerCall
    target: LayerCall
    names: str = "both"


@dataclasses.dataclass
class Case:
    layers: list[Pair]


def call(kind: str, **settings: object) -> LayerCall:
    return LayerCall(name=kind, kind=kind, settings=settings, inputs=(), output=np.zeros(3))


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (call("ReLU"), call("relu6"), "the first grows without limit, the second up to 6"),
        (call("ReLU6"), call("ReLU"), "the first grows up to 6, the second without limit"),
        (call("relu"), call("Relu6"), "the first grows without limit, the second up to 6"),
        (call("ReLU"), call("ReLU", max_value=20), "the first grows without limit, the second up to 20"),
        (call("Hardtanh", max_val=6.0), call("relu"), "the first grows up to 6, the second without limit"),
        (call("clamp"), call("Relu"), "the first grows up to a limit, the second without limit"),
        (call("Hardtanh", max_val=6.0), call("ReLU", max_value=6), ""),
        (call("ReLU6"), call("relu6"), ""),
        (call("clamp"), call("ClipByValue"), ""),
        (call("GELU"), call("relu6"), ""),
    ],
)
def test_a_ceiling_that_nothing_came_to(source: LayerCall, target: LayerCall, said: str) -> None:
    notes = list(notes_on_ceilings(Case([Pair(source, target)])))
    assert notes == ([f"both: {said}, and no number of the batch came that far"] if said else [])
