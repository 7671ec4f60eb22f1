"""The arrangement of the ranks along the axes of a mesh."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from samestep.common.mesh import AXES
from samestep.common.strategy import Run
from samestep.torch_impl import upstream

Exchange = Callable[[bool], contextlib.AbstractContextManager[object]]
"""Given whether a micro-batch is the last of its step, returns the context of its forward and backward pass."""


def device_mesh(run: Run, device: torch.device) -> DeviceMesh:
    """Arranges the ranks along the first axis of the strategy, and along every other axis that has several ranks.

    Args:
        run: The run, whose mesh has the sizes of the axes.
        device: The device of this process.
    """
    first, *others = run.strategy.axes
    axes = sorted([first, *(name for name in others if run.mesh.axis(name) > 1)], key=lambda name: AXES[name].order)
    return init_device_mesh(device.type, tuple(map(run.mesh.axis, axes)), mesh_dim_names=tuple(axes))


def along(mesh: DeviceMesh, axes: Sequence[str]) -> DeviceMesh:
    """Returns the ranks along one axis, or along several axes treated as one.

    Args:
        mesh: All ranks.
        axes: At least one axis of the mesh, in the order of the mesh.
    """
    return mesh[axes[0]] if len(axes) == 1 else upstream.flattened(mesh[tuple(axes)], ",".join(axes))


def nested(*exchanges: Exchange) -> Callable[[bool], contextlib.AbstractContextManager[None]]:
    """Nests the contexts that several axes put around the passes of a micro-batch; the first is outermost."""

    @contextlib.contextmanager
    def exchange(last: bool) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for each in exchanges:
                stack.enter_context(each(last))
            yield

    return exchange
