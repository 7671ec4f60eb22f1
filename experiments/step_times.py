"""The seconds of a candidate: which model of time a workload takes, and how a run is spelled in it."""

from collections.abc import Callable, Mapping
from typing import cast

from samestep.common.errors import ConfigError
from samestep.common.evidence.costs.machine import Machine
from samestep.common.evidence.costs.step_time import Layout, Shape, StepTime, step_time
from samestep.common.workload.models.decoder import DecoderSpec
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.experiments.candidates import Candidate

PARTS = {
    "compute": "computing",
    "tensor_exchange": "the exchanges inside layers",
    "pipeline_bubble": "the bubble of the pipeline",
    "pipeline_sends": "the sends between stages",
    "data_exchange": "the exchange of gradients and parameters",
    "optimizer": "the update",
}
"""The parts of a step, in words."""
WORK = ("compute", "optimizer")
"""What a device does itself; during the other parts it waits."""


def _transformer(spec: ModelSpec) -> Shape:
    model = cast(TransformerSpec, spec)
    return Shape(
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        key_heads=model.heads,
        hidden=4 * model.width,
        is_gated=False,
        context=model.context,
        vocabulary=model.vocabulary,
    )


def _decoder(spec: ModelSpec) -> Shape:
    model = cast(DecoderSpec, spec)
    return Shape(
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        key_heads=model.key_heads,
        hidden=model.hidden,
        is_gated=model.style == "llama",
        context=model.context,
        vocabulary=model.vocabulary,
    )


SHAPES: Mapping[str, Callable[[ModelSpec], Shape]] = {"transformer": _transformer, "decoder": _decoder}
"""Name of a model -> what the model of time sees of it."""


def seconds_of(candidate: Candidate, machine: Machine) -> StepTime:
    """Predicts the parts of a candidate's step.

    Args:
        candidate: What is timed.
        machine: What it runs on.

    Raises:
        ConfigError: Nothing says how long such a model takes.
    """
    run, mesh = candidate.run, candidate.run.mesh
    staged = mesh.axis("pipe") > 1
    layout = Layout(
        batch_size=run.batch_size,
        microbatch_size=candidate.microbatch_size,
        data=mesh.axis(candidate.row.axis),
        tensor=mesh.axis("tensor"),
        pipe=mesh.axis("pipe"),
        schedule=run.options.schedule if staged else "1f1b",
        sharding=candidate.row.sharding,
        recomputes=candidate.recomputes,
    )
    if (shape := SHAPES.get(run.workload.model.name)) is None:
        raise ConfigError(
            f"{run.workload.name} is no transformer, and nothing says how long another model takes; choose one of ours, as in "
            "synthetic-gpt+layers=12+width=768, or a published model."
        )
    return step_time(shape(run.workload.model), layout, machine)
