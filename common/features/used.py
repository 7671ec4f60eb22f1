"""The features that models may have, for everything that loops over them."""

import functools
import math
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError
from samestep.common.features import Features
from samestep.common.features.batch_norm.feature import BATCH_NORM
from samestep.common.features.dropout.feature import DROPOUT
from samestep.common.features.feature import Feature, Suspect
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec

if TYPE_CHECKING:
    import numpy as np  # only where arrays are made: a prediction does without

FEATURES: tuple[Feature, ...] = (DROPOUT, BATCH_NORM)
"""All there are, in the order in which tables and verdicts name them."""


def switched(model: ModelSpec, features: Features) -> ModelSpec:
    """Returns one of our models with everything that a request switches of it.

    Args:
        model: As its workload has it.
        features: The request.
    """
    for each in FEATURES:
        model = each.switch(model, features)
    return model


def spell_switched(features: Features) -> str:
    """Returns what was switched of a model, as a clause; "" for nothing."""
    return ", ".join(filter(None, (each.say_switched(features) for each in FEATURES)))


def refuse_features(run: Run) -> None:
    """Refuses a run that cannot have a feature as it asks for it.

    Raises:
        ConfigError: It is one.
    """
    for each in FEATURES:
        each.refuse(run)


def takes_keys(model: ModelSpec) -> bool:
    """Returns whether a step of one of our models needs to know which examples it takes."""
    return any(each.takes_keys(model) for each in FEATURES)  # asked in every step


def mask_bytes(model: ModelSpec) -> int:
    """Returns the bytes that are kept of each number that a model of ours lets pass or not."""
    return sum(each.mask_bytes(model) for each in FEATURES)


def find_suspects(run: Run) -> list[Suspect]:
    """Returns what of a user's model may make a right run leave its reference."""
    return [found for each in FEATURES if (found := each.suspect(run)) is not None]


def layers_of(model: ModelSpec) -> dict[str, int]:
    """Returns the layers that features add to one of our models: the path of each, and its number of channels."""
    return {path: size for each in FEATURES for path, size in each.layers(model).items()}


def buffers_of(model: ModelSpec) -> dict[str, tuple[int, float]]:
    """Returns the buffers of one of our models: the size of each, and the number it is filled with at first."""
    return {name: buffer for each in FEATURES for name, buffer in each.buffers(model).items()}


def initial_buffers(model: ModelSpec) -> "dict[str, np.ndarray]":
    """Returns the initial buffers, by neutral name: those that a description holds, or those of features."""
    import numpy as np

    if (folder := model.facts.folder) is not None:
        from samestep.common.workload.models.description import read_initial  # here: only a user's model is described

        return read_initial(folder, "buffers", model.facts.buffers)
    return {name: np.full(size, first) for name, (size, first) in buffers_of(model).items()}


def with_buffers(model: ModelSpec) -> Feature | None:
    """Returns the feature by which one of our models has buffers, if it has."""
    return next((each for each in FEATURES if each.buffers(model)), None)


def keeps_buffers(run: Run) -> bool:
    """Returns whether running buffers stay as they are."""
    return any(each.keeps_buffers(run) for each in FEATURES)


def exchanging(run: Run) -> Feature | None:
    """Returns the feature that is to exchange in the middle of a pass, if one is."""
    return next((each for each in FEATURES if each.exchanges(run)), None)


def refuse_exchange(run: Run, why: str) -> None:
    """Refuses what exchanges in the middle of a pass, for a strategy whose replicas never meet there.

    Args:
        run: What is to be trained.
        why: A clause.

    Raises:
        ConfigError: It is asked for.
    """
    if (feature := exchanging(run)) is not None:
        raise ConfigError(
            f"{run.name} cannot take {feature.exchanged_by}: {why}; choose torch:ddp, tf:mirrored, or another."
        )


def takes_shares(run: Run) -> bool:
    """Returns whether the number of parts of a batch decides the numbers of a run."""
    return any(each.takes_shares(run) for each in FEATURES)


def of_whole(run: Run) -> Run:
    """Returns a run as one device takes it that has all of a batch."""
    return functools.reduce(lambda whole, each: each.of_whole(whole), FEATURES, run)


def layers_apart(run: Run) -> list[str]:
    """Returns the layers of a user's model whose buffers each replica moves by its own examples."""
    return [path for each in FEATURES for path in each.layers_apart(run)]


def error_growth(run: Run) -> float:
    """Returns by how much the square of a rounding error grows on its way through what features add to a model."""
    return math.prod(each.error_growth(run) for each in FEATURES)


def say_growth(run: Run) -> str:
    """Says where errors grow beyond what can be judged, as what is rounded; "" if they do not."""
    return next(filter(None, (each.say_growth(run) for each in FEATURES)), "")


def sends_of_layers(run: Run, phase: str) -> dict[str, Send]:
    """Returns what layers of features send in the middle of a pass, by path.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    return {path: send for each in FEATURES for path, send in each.sends_of_layers(run, phase).items()}


def framework_sends(run: Run, phase: str) -> dict[str, Send]:
    """Returns the same of layers of the framework; the arguments are those of `sends_of_layers`."""
    return {path: send for each in FEATURES for path, send in each.framework_sends(run, phase).items()}
