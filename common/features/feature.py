"""What a feature of a model consists of: the hooks that its own folder fills in, and over which everything else loops."""

import dataclasses
from collections.abc import Callable, Mapping

from samestep.common.features import Features
from samestep.common.flags import Scalar
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec

_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Suspect:
    """What makes a right strategy compute another function of a user's model.

    Attributes:
        what: In words, with its layers counted.
        off: The flags that switch it off.
        remedy: How it is switched off, with the flag.
        is_exact: Whether that switches nothing else off: a layer in evaluation may also draw no random numbers.
    """

    what: str
    off: Mapping[str, Scalar]
    remedy: str
    is_exact: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """One thing that a model may have, under any strategy that takes it.

    Attributes:
        switch: Returns one of our models with what a request switches of it.
        say_switched: What a request switches, as a clause; "" if it leaves the model as it is.
        takes_keys: Whether one of our models needs to know which examples a step takes.
        mask_bytes: What is kept of each number that it lets pass or not, in bytes.
        suspect: What of a user's model may make a run leave its reference; None if nothing does.
    """

    switch: Callable[[ModelSpec, Features], ModelSpec] = lambda model, features: model
    say_switched: Callable[[Features], str] = lambda features: ""
    takes_keys: Callable[[ModelSpec], bool] = lambda model: False
    mask_bytes: Callable[[ModelSpec], int] = lambda model: 0
    suspect: Callable[[Run], Suspect | None] = lambda run: None


def count_layers(names: tuple[str, ...], noun: str) -> str:
    """Counts layers in words and names the first, as in "2 layers (a, b)".

    Args:
        names: Their paths.
        noun: What they are, in the singular.
    """
    named = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''} ({named})"
