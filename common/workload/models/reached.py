"""What a step reaches in a model: the parameters it trains, where gradients flow, and how often it applies a layer."""

from collections.abc import Iterable, Mapping

from samestep.common.workload.models.spec import ModelSpec, Param, Segment, parameters_of


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
