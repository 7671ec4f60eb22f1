"""One process, one device: the plain step, which is the baseline of every comparison.

Replicated: nothing. Split: nothing. Sent: nothing.
Use it whenever the model and the batch fit on one device, and one device is fast enough.
"""

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import describe, use_device
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.step_context import StepContext


def build(run: Run) -> TrainingProgram:
    """Builds the program of the only process."""
    device = use_device(run)
    context = StepContext(run.mesh.only_axis)
    model = build_fresh_model(run, device, context)
    parts = Parts(bare=model, hardware=Hardware(note=describe(device)), context=context)
    return TrainingProgram(run, parts)
