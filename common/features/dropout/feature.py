"""Dropout as a feature of a model."""

import dataclasses

from samestep.common.features import Features
from samestep.common.features.feature import Feature, Suspect, count_layers
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec


def rate_of(model: ModelSpec) -> float:
    """Returns the share of elements that one of our models drops; the dropout of a user's model belongs to its framework."""
    return float(model.facts.settings.get("dropout") or 0.0)


def without(model: ModelSpec, features: Features) -> ModelSpec:
    """Returns the model without dropout if that is requested; a user's model switches its own off when it is built.

    Args:
        model: One of our models.
        features: The request.
    """
    if features.dropout is not False or not rate_of(model):
        return model
    return dataclasses.replace(model, dropout=0.0)


def suspect_draws(run: Run) -> Suspect | None:
    """Suspects the random numbers of a user's model, which each replica draws for itself."""
    habits = run.workload.model.facts.habits
    if not (habits.randoms and habits.are_stilled and run.dropout is not False):
        return None
    what = f"the random numbers of {count_layers(habits.randoms, 'layer')}"
    return Suspect(what, {"dropout": False}, "switched off (--no-dropout)", is_exact=True)


DROPOUT = Feature(
    flag="dropout",
    field="dropout",
    is_in_own=lambda facts: bool(facts.habits.randoms),
    classes={
        "dropout": (
            "Dropout",
            "dropout",
            *(f"Dropout{n}d" for n in (1, 2, 3)),
            "SpatialDropout1D",
            "SpatialDropout2D",
            "Identity",
        )
    },
    switch=without,
    say_switched=lambda features: "without dropout" if features.dropout is False else "",
    takes_keys=lambda model: rate_of(model) > 0,
    mask_bytes=lambda model: int(rate_of(model) > 0),
    suspect=suspect_draws,
)
