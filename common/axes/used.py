"""The axes of a mesh, for everything that loops over them."""

import functools
import importlib
import math
from collections.abc import Mapping, Sequence

from samestep.common.axes.axis import AxisHooks
from samestep.common.mesh import AXES, Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Param, Segment


@functools.cache
def hooks_of(axis: str) -> AxisHooks:
    """Returns the hooks of an axis: `HOOKS` in the file of its name."""
    return importlib.import_module(f"samestep.common.axes.{axis}").HOOKS


@functools.cache
def exchanging_in_blocks() -> tuple[str, ...]:
    """Returns the axes along which the blocks of a transformer exchange all to all."""
    return tuple(name for name in AXES if hooks_of(name).all_to_all is not None)


@functools.cache
def used(mesh: Mesh) -> tuple[AxisHooks, ...]:
    """Returns the axes of a mesh along which there are several devices."""
    return tuple(hooks_of(name) for name, size in mesh.axes if size > 1)


def check_split(run: Run) -> None:
    """Refuses a run that its strategy cannot train, or that an axis of its mesh cannot split; the oracle splits nothing.

    Raises:
        ConfigError: The strategy or an axis refuses the run.
    """
    run.strategy.needs(run)
    for axis in used(run.mesh) if run.strategy.axes else ():
        axis.refuse(run)


def as_left(run: Run) -> Run:
    """Returns the run as one device sees the batch: each axis cuts what the axes before it left."""
    return functools.reduce(lambda left, axis: axis.leave(left), used(run.mesh), run)


def held_params(run: Run) -> Mapping[str, Param]:
    """Returns the parameters of a run's model that a device holds; one that an axis cuts has the shape of its part."""
    return held_of(run.workload.model, run.mesh, run.workload.model.params())


def held_of(model: ModelSpec, mesh: Mesh, params: Mapping[str, Param]) -> Mapping[str, Param]:
    """Returns what `held_params` returns, for some parameters of a model.

    Args:
        model: The model.
        mesh: All devices.
        params: Some of its parameters, by name.
    """
    return functools.reduce(lambda held, axis: axis.hold(model, mesh, held), used(mesh), params)


@functools.lru_cache(maxsize=64)  # every stage of a pipeline asks
def all_held(model: ModelSpec, mesh: Mesh) -> Mapping[str, Param]:
    """Returns what `held_of` returns, for all parameters; the arguments are those of `held_of`."""
    return held_of(model, mesh, model.params())


def dividing(model: ModelSpec, mesh: Mesh, name: str) -> list[str]:
    """Returns the axes along which devices hold parts of a parameter, in the order of the ranks.

    Args:
        model: The model.
        mesh: All devices.
        name: The name of the parameter.
    """
    return [axis for axis in mesh.in_order if hooks_of(axis).divides(model, mesh, name)]


def parts_of_outputs(left: Run, segment: Segment) -> int:
    """Returns into how many parts the outputs of a segment are cut.

    Args:
        left: The run that `as_left` returned.
        segment: A segment of its model.
    """
    return math.prod(axis.outputs(left.workload.model, left.mesh, segment) for axis in used(left.mesh))


def splits_between(run: Run) -> bool:
    """Returns whether a run also cuts the activations between the layers that it cuts."""
    return any(axis.splits_between(run) for axis in used(run.mesh))


def segments_left(left: Run, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Returns segments of a model as they are in the run that `as_left` returned.

    Args:
        left: The run.
        segments: Segments of the whole model.
    """
    names = {segment.name for segment in segments}
    return tuple(segment for segment in left.workload.model.segments() if segment.name in names)
