"""How often the forward pass of a user's model rounds to two bytes on its longest way."""

from pathlib import Path

import pytest
import torch

from samestep.common.request import RunConfig
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.workload.models.description import read_description
from samestep.common.workload.models.findings import TwoBytes
from samestep.torch_impl.describing.roundings import find_roundings
from tests.own.asked import ZOO, own

pytestmark = pytest.mark.torch

EXPECTED = {
    # Data; a product, a tanh, a product.
    "REGRESSION": 1 + 2 + 1 + 2,
    # Data; of the stem a product and its norm, ReLU and pool; two blocks of two products with norm and ReLU, and a sum; the head.
    "RESNET": 1 + (2 + 3) + 2 * (2 * (2 + 2) + 1) + 1 + 2,
}


def described(launcher: Launcher, **asked: str) -> TwoBytes:
    config = launcher.describe(RunConfig(framework="torch", strategy="ddp", **asked))
    return read_description(str(config.described)).rounded


@pytest.mark.parametrize("model", EXPECTED)
def test_roundings_on_the_longest_way(launcher: Launcher, model: str) -> None:
    assert described(launcher, **own(model)) == TwoBytes(roundings=EXPECTED[model])


def test_a_forward_pass_that_looks_at_its_numbers(launcher: Launcher, tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text("""
import samestep, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.inner(x) if x.sum() < 1e9 else x[:, :2]

model = samestep.Model(torch=Net, loss="mean_squared_error")
""")
    assert described(launcher, model=str(net), data=f"{ZOO}:points") == TwoBytes(roundings=3)


def test_a_layer_that_evaluation_computes_at_once_is_counted_in_its_products() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert layer.eval()(torch.zeros(2, 4, 8)).shape == (2, 4, 8)
    products = ("in", "attention", "out", "up", "down")
    assert find_roundings(layer, torch.zeros(2, 4, 8)).roundings >= 3 * len(products)
