"""The layers of a user's model that hold parameters, in the order in which the forward pass reaches them.

Layers of two frameworks are matched by these (`porting/matching/`), so roles and layouts are neutral here.
"""

import dataclasses
from typing import NamedTuple

WEIGHT_ROLES = ("kernel", "table", "scale", "value", "recurrent")
"""The roles that decide whether two layers can be the same; biases and statistics do not matter for that."""


@dataclasses.dataclass(frozen=True)
class LayerTensor:
    """A parameter or a buffer of a layer.

    Attributes:
        neutral: Its neutral name.
        native: Its name in the framework.
        shape: Its shape in the framework.
        permutation: The permutation of the framework's axes that gives the neutral layout.
    """

    neutral: str
    native: str
    shape: tuple[int, ...]
    permutation: tuple[int, ...]

    @property
    def neutral_shape(self) -> tuple[int, ...]:
        """The shape in the neutral layout."""
        return tuple(self.shape[axis] for axis in self.permutation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterLayer:
    """A layer that holds parameters.

    Attributes:
        name: Its path in the model.
        kind: The name of its class.
        call: The path of the module whose calls are recorded for it: its own path, or that of the attention around it.
        params: The parameters by role: kernel, bias, table, scale, recurrent, second_bias, or value for an unknown one.
        buffers: The buffers by role: running_mean, running_var.
    """

    name: str
    kind: str
    call: str
    params: dict[str, LayerTensor]
    buffers: dict[str, LayerTensor] = dataclasses.field(default_factory=dict)


class Stilled(NamedTuple):
    """Something that a layer does in training and that is switched off while two implementations are compared.

    Attributes:
        feature: The name of the feature of a model that does it.
        what: What it is applied to.
        share: The share of it that is affected.
    """

    feature: str
    what: str
    share: float
