"""The findings of a worker that builds a user's model once."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

Returns = Literal["outputs", "several", "loss"]
"""What a model returns: a tensor with the outputs of each example; several tensors, which only a user's loss can use; or the
loss."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedOptimizer:
    """The findings about the optimizer that the user's file builds.

    Attributes:
        learning_rate: The learning rate of its first group; the rates of the other groups keep their ratio to it.
        kept: What it keeps for each parameter, by the framework's keys.
        groups: The names of the parameters in each of its groups.
        refused: The reason why no strategy can use it; "" if one can.
        halves: A parameter of which it updates one half differently than as a part of the whole; "" if there is none.
        shards: A parameter that it updates differently if it is given shards that know of each other; "" if there is none.
        some: A parameter that it updates differently if it is not given some of the others; "" if there is none.
    """

    learning_rate: float = 0.0
    kept: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    refused: str = ""
    halves: str = ""
    shards: str = ""
    some: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoBytes:
    """The findings about a forward pass that computes in two bytes per number.

    Attributes:
        roundings: The largest number of roundings of a number on its way from the inputs to the outputs; 0 if there are none.
        refused: The reason why it cannot compute in two bytes; "" if it can.
    """

    roundings: int = 0
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class Use:
    """How a step uses a module.

    Attributes:
        positions: For a linear layer, how often it is applied to one example, for each of its calls.
        takes_gradient: Whether the gradient of its inputs is needed.
        gives_gradient: Whether its outputs depend on any trained parameter.
        calls: How often a forward pass calls it.
    """

    positions: tuple[int, ...] = (1,)
    takes_gradient: bool = True
    gives_gradient: bool = True
    calls: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Habits:
    """What a forward pass in training depends on besides an example and the weights, as a worker's experiments show.

    Attributes:
        randoms: The layers that draw random numbers.
        are_stilled: Whether nothing random remains when draws are held still.
        running: The buffers, except those of batch normalizations, that it updates, that its outputs depend on, and that do not
            change when their layers are in evaluation mode.
        restless: The buffers of this kind that change in evaluation mode as well.
        mixing: The layers whose outputs for an example depend on the other examples even if all of the above is held still.
        is_steady: Whether it gives the same outputs when it is called again with the same seed, weights and buffers.
    """

    randoms: tuple[str, ...] = ()
    are_stilled: bool = True
    running: tuple[str, ...] = ()
    restless: tuple[str, ...] = ()
    mixing: tuple[str, ...] = ()
    is_steady: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of building a model and passing some examples through it.

    Attributes:
        returns: The kind of value that it passes to its loss.
        unread: The places of the returned values that its loss does not read.
        dtypes: The parameters and buffers of real numbers whose dtype is not the default, by the framework's names.
        habits: What a forward pass in training depends on besides an example and the weights.
        sums: The layers that add to the loss something other than a mean over examples.
        optimizer: The optimizer of the user's file, in the framework that built it; None if there is none.
        rounded: The forward pass in two bytes per number.
        kept: The forward pass with each parameter in the dtype of its file, if a parameter has two bytes there.
        unused: The parameters that got no gradient in the experiment.
        branches: Whether these may differ in another step, since the forward pass branches on its numbers.
        uses: How a step uses its blocks, and the layers that a tensor plan splits, by path.
        written: The parameters that a forward pass in training writes, in addition to the optimizer's updates.
        casts: The modules that cast to float32, but keep float64 inputs.
        loops: The number of iterations of each loop in a forward pass that reads parameters, e.g. in TensorFlow's recurrent
            layers.
    """

    returns: Returns = "outputs"
    unread: tuple[int, ...] = ()
    dtypes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    habits: Habits = dataclasses.field(default_factory=Habits)
    sums: tuple[str, ...] = ()
    optimizer: DescribedOptimizer | None = None
    rounded: TwoBytes = dataclasses.field(default_factory=TwoBytes)
    kept: TwoBytes = dataclasses.field(default_factory=TwoBytes)
    unused: tuple[str, ...] = ()
    branches: bool = False
    uses: Mapping[str, Use] = dataclasses.field(default_factory=dict)
    written: tuple[str, ...] = ()
    casts: tuple[str, ...] = ()
    loops: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeclaredFindings(Findings):
    """The findings, and what the user's file declares about the model.

    Attributes:
        source: The user's file and the name in it, as an absolute FILE.py:NAME; or the name under which a package offers it; ""
            for a model of ours.
        frameworks: The frameworks that can build it; empty if all can.
        reduction: How a batch's loss is computed from the losses of its parts, as in `declaration.REDUCTIONS`; "own" means a
            function.
        ignores: Whether targets below 0 do not count.
        buffers: The shapes of the buffers that only its framework can update, by neutral name.
        whole_buffers: The buffers among these that hold whole numbers.
    """

    source: str = ""
    frameworks: tuple[str, ...] = ()
    reduction: str = "targets"
    ignores: bool = False
    buffers: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    whole_buffers: tuple[str, ...] = ()
