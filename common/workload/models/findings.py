"""What a worker finds out about parts of a user's model: its optimizer, its rounding, and how a step uses its modules."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedOptimizer:
    """What a worker found out about the optimizer that the file builds.

    Attributes:
        learning_rate: The learning rate of its first group; those of the others keep their ratio to it.
        kept: What it keeps of each parameter, by the framework's own key.
        groups: The names of the parameters in each of its groups.
        refused: Why no strategy can take it, if none can.
        halves: A parameter of which it updates a half in another way than as a part of the whole; "" if there is none.
        shards: One of which it updates shards, that know of each other, in another way.
        some: One that it updates in another way if it is not given some of the others.
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
        roundings: How often a number is rounded at most on its way from the inputs to the outputs; 0 if nothing is.
        refused: Why it cannot compute so, if it cannot.
    """

    roundings: int = 0
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class Use:
    """How a step uses a module.

    Attributes:
        positions: The positions of a linear layer: how often it is applied to one example, for each of its calls.
        takes_gradient: Whether the gradient of its inputs is needed.
        gives_gradient: Whether its outputs depend on anything that is trained.
    """

    positions: tuple[int, ...] = (1,)
    takes_gradient: bool = True
    gives_gradient: bool = True
