"""The features that models may have, for everything that loops over them."""

import functools
import math
from collections.abc import Iterable, Mapping

from samestep.common.errors import ConfigError
from samestep.common.features import Features
from samestep.common.features.batch_norm.feature import BATCH_NORM
from samestep.common.features.dropout.feature import DROPOUT
from samestep.common.features.experts.balance import balance_of
from samestep.common.features.experts.feature import EXPERTS
from samestep.common.features.feature import Feature, LayerExchange, RunningBuffers, Suspect
from samestep.common.flags import flags
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.array_type import Arrays
from samestep.common.workload.models.spec import ModelSpec

FEATURES: tuple[Feature, ...] = (DROPOUT, BATCH_NORM, EXPERTS)
"""All features, in the order in which tables and verdicts name them."""


@functools.lru_cache(maxsize=8)
def _of(model: ModelSpec) -> tuple[Feature, ...]:
    """Returns the features that a model has."""
    switches = flags(model)
    own = {name for name, field in switches.items() if getattr(model, name) != field.default}
    return tuple(each for each in FEATURES if each.field in own or each.is_in_own(model.facts))


def _used(run: Run) -> list[Feature]:
    """Returns the features that a run's model has, or that it asks for."""
    had, defaults = _of(run.workload.model), Features()
    return [
        each
        for each in FEATURES
        if each in had or (each.flag and getattr(run, each.flag) != getattr(defaults, each.flag))
    ]


def switched(model: ModelSpec, features: Features) -> ModelSpec:
    """Returns one of our models with its features switched as requested.

    Args:
        model: The model of the workload.
        features: The request.
    """
    for each in _of(model):
        model = each.switch(model, features)
    return model


def spell_switched(features: Features) -> str:
    """Returns what was switched of a model, as a clause; "" for nothing."""
    return ", ".join(filter(None, (each.say_switched(features) for each in FEATURES)))


def refuse_features(run: Run) -> None:
    """Refuses a run that cannot have a feature as requested.

    Raises:
        ConfigError: The run asks for such a feature.
    """
    for each in _used(run):
        each.refuse(run)


def takes_keys(model: ModelSpec) -> bool:
    """Returns whether a step of one of our models needs to know which examples it takes."""
    return any(each.takes_keys(model) for each in _of(model))  # called in every step


def mask_bytes(model: ModelSpec) -> int:
    """Returns the bytes that are kept for each number that dropout of one of our models passes on or drops."""
    return sum(each.mask_bytes(model) for each in _of(model))


def balanced_numbers(model: ModelSpec) -> int:
    """Returns how many numbers a load-balancing loss keeps for all examples together."""
    return model.facts.sizes.layers * model.facts.sizes.routed_experts if balance_of(model) else 0


def find_suspects(run: Run) -> list[Suspect]:
    """Returns what in a user's model may make a correct run deviate from its reference."""
    return [found for each in _used(run) if (found := each.suspect(run)) is not None]


def layers_of(model: ModelSpec) -> dict[str, int]:
    """Returns the layers that features add to one of our models: the path of each, and its number of channels."""
    return {path: size for each in _of(model) for path, size in each.layers(model).items()}


def buffers_of(model: ModelSpec) -> dict[str, tuple[int, float]]:
    """Returns the buffers of one of our models: the size of each, and the number it is filled with at first."""
    return {name: buffer for each in _of(model) if each.buffers for name, buffer in each.buffers.of(model).items()}


def initial_buffers(model: ModelSpec) -> Arrays:
    """Returns the initial buffers, by neutral name: those that a description holds, or those of features."""
    import numpy as np

    if (folder := model.facts.folder) is not None:
        from samestep.common.workload.models.description import read_initial  # here: only a user's model is described

        return read_initial(folder, "buffers", model.facts.buffers)
    return {name: np.full(size, first) for name, (size, first) in buffers_of(model).items()}


def running_buffers(model: ModelSpec) -> RunningBuffers | None:
    """Returns the kind of running buffers that one of our models has; None if it has none."""
    return next((each.buffers for each in _of(model) if each.buffers and each.buffers.of(model)), None)


def keeps_buffers(run: Run) -> bool:
    """Returns whether a run leaves running buffers unchanged."""
    return any(each.buffers.are_kept(run) for each in _used(run) if each.buffers)


def exchange_within(run: Run) -> LayerExchange | None:
    """Returns the exchange of layers in the middle of a pass that a run asks for; None if it asks for none."""
    return next((each.exchange for each in _used(run) if each.exchange and each.exchange.is_asked(run)), None)


def sends_of_layers(run: Run, phase: str) -> Mapping[str, Send]:
    """Returns what layers of our models send in the middle of a pass, by path.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    exchange = exchange_within(run)
    return {} if exchange is None else exchange.sends(run, phase)


def with_layers(run: Run, sends: Iterable[Send], with_ours: bool = True) -> list[Send]:
    """Adds what layers exchange to what a strategy sends.

    Args:
        run: What is trained.
        sends: The sends, in order.
        with_ours: Whether layers of our models are included, and not only those of the framework.
    """
    sends = list(sends)
    if (exchange := exchange_within(run)) is None:
        return sends
    forward, backward = (
        [*(exchange.sends(run, phase).values() if with_ours else ()), *exchange.framework_sends(run, phase).values()]
        for phase in ("forward", "backward")
    )
    first = next((index for index, send in enumerate(sends) if send.phase != "forward"), len(sends))
    return [*sends[:first], *forward, *reversed(backward), *sends[first:]]


def refuse_exchange(run: Run, why: str) -> None:
    """Refuses features that exchange in the middle of a pass, for a strategy whose replicas cannot.

    Args:
        run: What is to be trained.
        why: Why the replicas cannot, as a clause.

    Raises:
        ConfigError: The run asks for such an exchange.
    """
    if (exchange := exchange_within(run)) is not None:
        raise ConfigError(
            f"{run.name} cannot take {exchange.flag}, which needs {exchange.in_words}: {why}; give {exchange.without}, or choose "
            "torch:ddp, tf:mirrored, or another."
        )


def takes_shares(run: Run) -> bool:
    """Returns whether the number of parts of a batch affects the numbers of a run."""
    return any(each.takes_shares(run) for each in _used(run))


def of_whole(run: Run) -> Run:
    """Returns a run as one device with the whole batch takes it."""
    return functools.reduce(lambda whole, each: each.of_whole(whole), _used(run), run)


def layers_apart(run: Run) -> list[str]:
    """Returns the layers of a user's model whose buffers each replica updates with its own examples."""
    return [path for each in _used(run) for path in each.layers_apart(run)]


def error_growth(run: Run) -> float:
    """Returns by how much the square of a rounding error grows in the layers that features add to a model."""
    return math.prod(each.error_growth(run) for each in _used(run))


def say_growth(run: Run) -> str:
    """Returns a noun clause for what lets errors grow beyond what can be judged; "" if nothing does."""
    return next(filter(None, (each.say_growth(run) for each in _used(run))), "")
