"""The features that models may have, for everything that loops over them."""

from samestep.common.features import Features
from samestep.common.features.batch_norm.feature import BATCH_NORM
from samestep.common.features.dropout.feature import DROPOUT
from samestep.common.features.feature import Feature, Suspect
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec

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


def takes_keys(model: ModelSpec) -> bool:
    """Returns whether a step of one of our models needs to know which examples it takes."""
    return any(each.takes_keys(model) for each in FEATURES)  # asked in every step


def mask_bytes(model: ModelSpec) -> int:
    """Returns the bytes that are kept of each number that a model of ours lets pass or not."""
    return sum(each.mask_bytes(model) for each in FEATURES)


def find_suspects(run: Run) -> list[Suspect]:
    """Returns what of a user's model may make a right run leave its reference."""
    return [found for each in FEATURES if (found := each.suspect(run)) is not None]
