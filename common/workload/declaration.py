"""`samestep.Model`, the declaration of a model in a user's file. It uses only the standard library."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from samestep.common.errors import ConfigError
from samestep.common.frameworks import FRAMEWORKS
from samestep.common.workload.accepted import check_accepted
from samestep.common.workload.array_type import Array

Builder = Callable[[], object]
"""A function that makes a model of one framework, with its initial weights."""
CLASSES_FIRST, CLASSES_LAST = "cross_entropy_classes_first", "cross_entropy_classes_last"
"""Cross-entropy of outputs [examples, classes, ...], as torch takes them, and of outputs [examples, ..., classes]."""
LOSSES = ("cross_entropy", CLASSES_FIRST, CLASSES_LAST, "binary_cross_entropy", "mean_squared_error")
RETURNED = "returned"
"""The loss that a model computes itself, from targets among its inputs."""
METRICS = {
    **dict.fromkeys(("cross_entropy", CLASSES_FIRST, CLASSES_LAST), "accuracy"),
    "binary_cross_entropy": "auc",
    "mean_squared_error": "root_mean_squared_error",
}
"""Loss -> the metric that is used if none is given."""
LOSS_METRIC = "loss"
"""The metric of a user's own loss if none is given: the loss on the held-out examples."""
REDUCTIONS = ("targets", "examples", "mean", "sum")
"""The ways to compute the loss of a batch from the losses that a function returns."""
NAMED_METRICS = (*dict.fromkeys(METRICS.values()), "bits_per_token")
Metric = Callable[[Array, Array], float]
"""(outputs, targets) of all held-out examples -> one number."""
BY_NAME = ("segments", "tensor_plan", "optimizer", "names")
"""The fields of a declaration that map the names of frameworks, layers or parameters."""


def split_file(text: str) -> tuple[str, str]:
    """Splits `FILE.py:NAME`. The name is "" if none is given, and the file is "" if no Python file is named."""
    file, _, name = (text, ":", "") if text.endswith(".py") else text.rpartition(":")
    return (file, name) if file.endswith(".py") else ("", text)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model of the user's own: how to build it in one framework or in both, and how it is judged.

    Attributes:
        torch: Builds a `torch.nn.Module` whose forward pass takes the inputs and returns the outputs, or something that
            has them as `logits`.
        tf: Builds a Keras model, or a `tf.Module` that can be called.
        loss: "cross_entropy", "binary_cross_entropy" or "mean_squared_error"; "cross_entropy_classes_first" or
            "cross_entropy_classes_last" where the shapes fit both; "returned" if the model returns its own; or framework -> a
            function of (what the model returns, targets) that returns losses, as `reduction` says.
        reduction: Which losses these are. "targets": one for each target, of which a batch takes the mean. "examples": one for
            each example, of which a batch takes the mean. "mean": the mean over the given examples, as a returned loss is.
            "sum": any losses, of which a batch takes the sum. Or a function of the targets of a batch, a NumPy array, that
            returns what the sum is divided by.
        metric: "accuracy", "auc", "root_mean_squared_error" or "bits_per_token"; or a function of NumPy arrays (outputs,
            targets) of all held-out examples that returns one number. By default the one that suits the loss; for a loss of
            your own, that loss.
        blocks: Paths of the modules that FSDP gathers together; by default the members of lists of like modules.
        segments: Framework -> a function of the built model that returns its forward pass as functions by name, in
            order. A name is the path of the module whose parameters the function uses. By default the children of a
            sequential model.
        tensor_plan: For torch: path of a linear layer -> "column" or "row"; a path may have `*` for one part of it.
        optimizer: Framework -> a function that returns its optimizer: for torch, given the parameters; for TensorFlow, without
            arguments. By default, one of ours.
        names: Torch's layer or parameter -> TensorFlow's, if samestep cannot match them.
        accept: Known differences between the two that you accept, as in ("double_bias", "epsilon").
    """

    torch: Builder | None = None
    tf: Builder | None = None
    loss: str | Mapping[str, Callable[..., object]] = "cross_entropy"
    reduction: "str | Callable[[Array], float]" = ""
    metric: str | Metric = ""
    blocks: Sequence[str] | None = None
    segments: Mapping[str, Callable[..., Mapping[str, Callable[..., object]]]] | None = None
    tensor_plan: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optimizer: Mapping[str, Callable[..., object]] | None = None
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    accept: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuses arguments of a wrong kind where they are written, since a traceback of ours would come much later.

        Raises:
            ConfigError: An argument is of a wrong kind.
        """
        for name in BUILDERS:
            if (given := self.builder(name)) is not None and not callable(given):
                raise _odd(name, given, "the function that builds the model")
        if not isinstance(self.loss, str | Mapping):
            raise _odd("loss", self.loss, "a name, or a function for each framework, as in {'torch': function}")
        if not (isinstance(self.metric, str) or callable(self.metric)):
            raise _odd("metric", self.metric, "a name, or a function of outputs and targets")
        if not (callable(self.reduction) or self.reduction in ("", *REDUCTIONS)):
            raise _odd(
                "reduction", self.reduction, f"one of {', '.join(REDUCTIONS)}, or a function of a batch's targets"
            )
        for name in BY_NAME:
            if (given := getattr(self, name)) is not None and not isinstance(given, Mapping):
                raise _odd(name, given, "names and what belongs to them, as in {'torch': ...}")
        if isinstance(self.blocks, str) or not isinstance(self.blocks or (), Sequence):
            raise _odd("blocks", self.blocks, "a list of paths of modules")
        if isinstance(self.accept, str) or not isinstance(self.accept, Sequence):
            raise _odd("accept", self.accept, "a list of names, as in ['double_bias']")
        check_accepted(map(str, self.accept), "It is given in accept of your samestep.Model.")

    def builder(self, framework: str) -> Builder | None:
        """Returns the function that builds the model in a framework; None if the file has none."""
        return vars(self)[framework]


BUILDERS = tuple(name for name in FRAMEWORKS if name in Model.__dataclass_fields__)
"""The frameworks for which a declaration can have a builder, in a field of that name; the first with one draws the weights."""


def _odd(name: str, given: object, wanted: str) -> ConfigError:
    shown = repr(given) if isinstance(given, str | int) else "..."
    return ConfigError(f"samestep.Model({name}={shown}) is {type(given).__name__}; give {wanted}.")
