"""BabyCNN: two convolution blocks and a two-layer head."""

import torch
from torch import nn

from samestep.common.workload.models.cnn import CnnSpec
from samestep.torch_impl.features.applied import convolution
from samestep.torch_impl.models.layers import ACTIVATIONS, POOLINGS
from samestep.torch_impl.models.segmented import SegmentFunction, run_segments
from samestep.torch_impl.step_context import StepContext


class BabyCNN(nn.Module):
    """The convolutional model, [batch, height, width, channels] -> [batch, outputs]."""

    def __init__(self, spec: CnnSpec, context: StepContext) -> None:
        super().__init__()
        self.activate, self.pool = ACTIVATIONS[spec.activation], POOLINGS[spec.pooling]
        height, width, channels = spec.image
        sizes = (channels, spec.filters, 2 * spec.filters)
        self.blocks = nn.ModuleList(convolution(spec.norm, sizes[i], sizes[i + 1]) for i in range(2))
        self.hidden = nn.Linear(height // 4 * (width // 4) * sizes[-1], spec.hidden)
        self.output = nn.Linear(spec.hidden, spec.outputs)

    def segments(self) -> dict[str, SegmentFunction]:
        """Returns two blocks and two linear layers; channels are last in the neutral layout and second in torch's."""
        return {
            "blocks/0": lambda x: self._block(0, x.permute(0, 3, 1, 2)),
            "blocks/1": lambda x: self._block(1, x).permute(0, 2, 3, 1).flatten(1),
            "hidden": lambda x: self.activate(self.hidden(x)),
            "output": self.output,
        }

    def _block(self, i: int, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.activate(self.blocks[i](x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x)
