"""The conventions of PyTorch, as neutral code needs them. Imports no framework."""

from samestep.common.frameworks import Conventions

CONVENTIONS = Conventions(
    name="torch",
    modules=("torch",),
    followed="torch",
    steps="an optimizer's step(), or where none is called, weights that have changed after backward() or "
    "torch.autograd.grad()",
    formats=("dcp",),
    holds_complex="torch.view_as_real(...), with torch.view_as_complex(...) in the forward pass",
    not_trained="register it as a buffer",
    other_dtypes="{counted} in the file, and cast to {dtype} here",
    why_wide="torch.autocast finds no products in it",
    weights_suffix=".torch.safetensors",
    read_suffixes=(".safetensors",),
    faults={
        "modified by an inplace operation": "the forward pass or the loss writes into a tensor that the backward pass needs; "
        "make a new one, as `h = h + 1` does and `h += 1` does not"
    },
)
