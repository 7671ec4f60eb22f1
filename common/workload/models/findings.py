"""What a worker finds out about a user's model by building it once."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

Returns = Literal["outputs", "several", "loss"]
"""What a model returns: a tensor with the outputs of each example; several tensors, which only a user's loss can use; or the
loss."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedOptimizer:
    """What a worker found out about the optimizer that the file builds.

    Attributes:
        learning_rate: The learning rate of its first group; those of the others keep their ratio to it.
        kept: What it keeps for each parameter, by the framework's own key.
        groups: The names of the parameters in each of its groups.
        refused: Why no strategy can use it, if none can.
        halves: A parameter of which it updates a half differently from that part of the whole; "" if there is none.
        shards: A parameter that it updates differently if it is given shards that know of each other.
        some: A parameter that it updates differently if it is not given some of the others.
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
    """What a worker found out about the forward pass where it computes in two bytes a number.

    Attributes:
        roundings: How often a number is rounded at most on its way from the inputs to the outputs; 0 if none is.
        refused: Why it cannot compute in two bytes, if it cannot.
    """

    roundings: int = 0
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class Use:
    """How a step uses a module.

    Attributes:
        positions: The positions of a linear layer: how often it is applied to one example, for each of its calls.
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
    """What a forward pass in training depends on besides an example and the weights, as experiments of a worker show.

    Attributes:
        randoms: The layers that draw random numbers.
        are_stilled: Whether nothing random remains when draws are held still.
        running: The buffers, besides those of batch normalizations, that it updates and its outputs depend on, and that do not
            change when their layers are in evaluation mode.
        restless: Such buffers that change in evaluation mode as well.
        mixing: The layers whose outputs for an example depend on the other examples when all of this is held still.
        is_steady: Whether it gives the same outputs when it is called again, with the same seed, weights and buffers.
    """

    randoms: tuple[str, ...] = ()
    are_stilled: bool = True
    running: tuple[str, ...] = ()
    restless: tuple[str, ...] = ()
    mixing: tuple[str, ...] = ()
    is_steady: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """What building a model and taking some examples through it shows.

    Attributes:
        returns: What it passes to its loss.
        unread: The places of returned values that its loss does not read.
        dtypes: The parameters and buffers of real numbers that are not in the default dtype, by the framework's own name.
        habits: What a forward pass in training depends on besides an example and the weights.
        sums: The layers that add something to the loss that is not a mean over examples.
        optimizer: The optimizer of the user's file, in the framework that built it; None if it has none.
        rounded: Its forward pass in two bytes for each number.
        kept: Its forward pass with each parameter in the dtype of its file, if one has two bytes.
        unused: The parameters that got no gradient when it was tried.
        branches: Whether these may differ in another step, since the forward pass branches on its numbers.
        uses: How a step uses its blocks and the layers that a tensor plan cuts, by path.
        written: The parameters that a forward pass in training writes, in addition to the optimizer's updates.
        casts: The modules that cast to float32, but keep float64 if they get it.
        loops: The number of iterations of each loop in a forward pass that reads parameters, as in TensorFlow's recurrent layers.
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
        source: The user's file and the name in it, as an absolute FILE.py:NAME; or a package's name for it. "" for a model of
            ours.
        frameworks: The frameworks that can build it; empty if all can.
        reduction: How a batch's loss is computed from the losses of its parts, see `declaration.REDUCTIONS`; "own" is a
            function.
        ignores: Whether targets below 0 do not count.
        buffers: The shapes of the buffers that only its framework can update, by neutral name.
        whole_buffers: Those of them that hold whole numbers.
    """

    source: str = ""
    frameworks: tuple[str, ...] = ()
    reduction: str = "targets"
    ignores: bool = False
    buffers: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    whole_buffers: tuple[str, ...] = ()
