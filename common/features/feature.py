"""A feature of a model: the hooks that its folder fills in, and over which everything else loops."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from samestep.common.features import Features
from samestep.common.flags import Scalar
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.spec import ModelSpec

_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Suspect:
    """Something that makes a correct strategy compute another function than a user's model on one device.

    Attributes:
        what: A phrase for it, with its layers counted.
        off: The flags that switch it off.
        remedy: How it is switched off, with the flag.
        is_exact: Whether that switches nothing else off, unlike evaluation mode, in which a layer may also not draw.
    """

    what: str
    off: Mapping[str, Scalar]
    remedy: str
    is_exact: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunningBuffers:
    """The buffers that layers of a feature update in training, in addition to parameters.

    Attributes:
        of: Returns those of one of our models: the size of each, and its initial value.
        asked_by: How a workload asks for such layers.
        in_words: The name of the buffers in messages.
        kept_by: The flag that leaves them, and such buffers of a user's model, unchanged.
        are_kept: Whether a run leaves them unchanged.
    """

    of: Callable[[ModelSpec], Mapping[str, tuple[int, float]]]
    asked_by: str
    in_words: str
    kept_by: str
    are_kept: Callable[[Run], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerExchange:
    """An exchange between devices that layers of a feature make in the middle of a pass.

    Attributes:
        flag: The flag that asks for it.
        in_words: The name in messages of what the layers receive.
        without: The flag that asks for no such exchange.
        is_asked: Whether a run asks for it.
        sends: Returns what layers of our models send in a phase, by path.
        framework_sends: Returns the same for layers of the framework, and what is sent between the two passes.
    """

    flag: str
    in_words: str
    without: str
    is_asked: Callable[[Run], bool]
    sends: Callable[[Run, str], Mapping[str, Send]]
    framework_sends: Callable[[Run, str], Mapping[str, Send]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """One feature that a model may have, under any strategy that supports it.

    Its other hooks are called only for a model that has it, or for a run that asks for it.

    Attributes:
        flag: The field of `Features` by which a run asks for it; "" if only a model does.
        field: The field of our models that turns it on; they have it if the field is not at its default.
        is_in_own: Whether a user's model has it, according to what was found out about that model.
        switch: Returns one of our models as a request switches it.
        say_switched: Returns what a request switches, as a clause; "" if it leaves the model as it is.
        refuse: Raises a ConfigError for a run that cannot have it as requested, under any strategy.
        takes_keys: Whether one of our models needs to know which examples a step takes.
        mask_bytes: The bytes that are kept for each number that it passes on or drops.
        layers: The layers that it adds to one of our models: the path of each, and its number of channels.
        buffers: The buffers that these layers update in training, if they have any.
        exchange: What these layers exchange in the middle of a pass, if they do.
        takes_shares: Whether the number of parts of a batch affects the numbers of a run.
        of_whole: Returns a run as one device with the whole batch takes it.
        classes: Family of layers -> the classes of frameworks that belong to it, as ports compare them.
        layers_apart: The layers of a user's model whose buffers each replica updates with its own examples.
        suspect: What in a user's model may make a run leave its reference; None if nothing may.
        error_growth: By how much the square of a rounding error grows on its way through its layers.
        say_growth: Returns a noun clause for what makes that more than can be judged; "" if it is not.
    """

    flag: str = ""
    field: str
    is_in_own: Callable[[ModelFacts], bool] = lambda facts: False
    switch: Callable[[ModelSpec, Features], ModelSpec] = lambda model, features: model
    say_switched: Callable[[Features], str] = lambda features: ""
    refuse: Callable[[Run], None] = lambda run: None
    takes_keys: Callable[[ModelSpec], bool] = lambda model: False
    mask_bytes: Callable[[ModelSpec], int] = lambda model: 0
    layers: Callable[[ModelSpec], Mapping[str, int]] = lambda model: {}
    buffers: RunningBuffers | None = None
    exchange: LayerExchange | None = None
    takes_shares: Callable[[Run], bool] = lambda run: False
    of_whole: Callable[[Run], Run] = lambda run: run
    classes: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    layers_apart: Callable[[Run], Sequence[str]] = lambda run: ()
    suspect: Callable[[Run], Suspect | None] = lambda run: None
    error_growth: Callable[[Run], float] = lambda run: 1.0
    say_growth: Callable[[Run], str] = lambda run: ""


def count_layers(names: tuple[str, ...], noun: str) -> str:
    """Counts layers in words and names the first, as in "2 layers (a, b)".

    Args:
        names: The paths of the layers.
        noun: The noun for one of them.
    """
    named = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''} ({named})"
