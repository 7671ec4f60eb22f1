"""What a step reaches in a model: the parameters it trains, where gradients flow, and how often it applies a layer."""

import functools
from collections.abc import Iterable, Mapping

from samestep.common.workload.models.spec import ModelSpec, Param, Segment, parameters_of, shared_parameters


def trained(params: Mapping[str, Param]) -> dict[str, Param]:
    """Leaves out the parameters that are frozen."""
    return {name: param for name, param in params.items() if not param.frozen}


def num_trained(params: Iterable[Param]) -> int:
    """Returns the number of elements of the parameters that are not frozen."""
    return sum(param.size for param in params if not param.frozen)


def carry_gradients(model: ModelSpec, segments: Iterable[Segment]) -> bool:
    """Returns whether what some segments hand on depends on a parameter that is trained.

    Args:
        model: The spec.
        segments: All up to there.
    """
    return any(not param.frozen for param in parameters_of(model, *segments).values())


def first_trained(model: ModelSpec) -> int:
    """Returns the number of the first segment with a parameter that is trained: ahead of it no gradient is needed."""
    segments = model.segments()
    return next((number for number, each in enumerate(segments) if carry_gradients(model, [each])), len(segments))


@functools.lru_cache(maxsize=8)
def kinds_of_segments(model: ModelSpec) -> Mapping[str, int]:
    """Segment -> a number that those with equal parameters share; one that several segments use is equal to itself alone."""
    shared, kinds = shared_parameters(model), dict[object, int]()
    return {
        segment.name: kinds.setdefault(
            tuple((name if name in shared else "", param) for name, param in parameters_of(model, segment).items()),
            len(kinds),
        )
        for segment in model.segments()
    }
