"""A tensor plan is tried on two ranks when a model is described: what is another function in parts is refused by name."""

import pytest
import torch
from torch import nn

import samestep
from samestep.common.errors import ConfigError
from samestep.torch_impl.describing.tensor_plan import find_plan

pytestmark = pytest.mark.torch
SPLIT = {"query": "column", "key": "column", "value": "column", "mix": "row", "up": "column", "down": "row"}
PACKED = {"packed": "column", "mix": "row"}


class Attention(nn.Module):
    """Two heads, and a wide layer behind them."""

    def __init__(self, is_packed: bool) -> None:
        super().__init__()
        self.is_packed = is_packed
        self.query, self.key, self.value, self.mix = (nn.Linear(8, 8) for _ in range(4))
        self.packed, self.up, self.down = nn.Linear(8, 24), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.packed(x).chunk(3, -1) if self.is_packed else (self.query(x), self.key(x), self.value(x))
        heads = (part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in parts)
        x = x + self.mix(nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2))
        return x + self.down(self.up(x).relu())


def planned(module: nn.Module, plan: dict[str, str]) -> dict[str, str]:
    inputs = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = samestep.Model(torch=lambda: module, tensor_plan=plan)
    return dict(find_plan(model, module.double().eval(), inputs, "net.py:model"))


def test_pairs_of_layers_are_taken() -> None:
    assert planned(Attention(False), SPLIT) == SPLIT


def test_packed_queries_keys_and_values_are_named_and_not_the_layers_that_are_right() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.right, self.wrong = Attention(False), Attention(True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.wrong(self.right(x))

    right = {f"right.{path}": way for path, way in SPLIT.items()}
    wrong = {f"wrong.{path}": way for path, way in PACKED.items()}
    said = r"the result of wrong\.packed and wrong\.mix is off by \d+ % on 2 ranks; .* has to be split into three\."
    with pytest.raises(ConfigError, match=said):
        planned(Net(), right | wrong)


def test_a_fixed_number_of_heads_is_refused_with_what_to_write() -> None:
    class Net(Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mix(self.query(x).reshape(2, 5, 8))

    with pytest.raises(ConfigError, match=r"fails on 2 ranks: shape '\[2, 5, 8\]' is invalid .* write -1 there"):
        planned(Net(False), {"query": "column", "mix": "row"})


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_plan_that_the_model_publishes_is_taken_if_it_is_right(is_packed: bool) -> None:
    module, plan = Attention(is_packed), PACKED if is_packed else SPLIT
    published = {path: f"{way[:3]}wise" for path, way in plan.items()} | {"embed": "embedding_rowwise"}
    module._tp_plan = published  # type: ignore[assignment]
    assert planned(module, {}) == ({} if is_packed else SPLIT)
