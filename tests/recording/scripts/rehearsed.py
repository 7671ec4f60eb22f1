"""Traces a model, tries out others that have no numbers, and trains where modes and tensors are told of each operation."""

import contextlib

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen = []


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        seen.append(str(function))
        return function(*arguments, **keywords or {})


class Called(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        seen.append(function.__name__)
        return function(*arguments, **keywords or {})


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        seen.append(function.__name__)
        return super().__torch_function__(function, types, arguments, keywords or {})


def step(net, inputs):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(inputs).square().mean().backward()
    optimizer.step()


def trained(mode, inputs):
    seen.clear()
    with mode:
        step(net, inputs)
    return {*seen}


torch.set_num_threads(1)
torch.manual_seed(0)
net, inputs = nn.Sequential(nn.Linear(6, 8), nn.ReLU()), torch.randn(4, 6)
assert "view" not in str(torch.jit.trace(net, inputs).graph)
with FakeTensorMode():
    step(nn.Linear(6, 8), torch.randn(4, 6))
step(nn.Linear(6, 8, device="meta"), torch.randn(4, 6, device="meta"))
assert not trained(Called(), inputs) & {"view", "numpy", "tolist", "contiguous"}
assert not trained(Dispatched(), inputs) & {"aten.mv.default", "aten.view.dtype", "aten.empty.memory_format"}
told = trained(contextlib.nullcontext(), inputs.as_subclass(Told))
assert told == {"linear", "relu", "square", "mean", "backward"}, told
step(net, inputs)
