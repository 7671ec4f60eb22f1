"""The ranker: one embedding table per id, concatenated, then an MLP to one logit."""

import torch
from torch import nn

from samestep.common.workload.models.ranker import RankerSpec
from samestep.torch_impl.models.layers import ACTIVATIONS
from samestep.torch_impl.models.segmented import SegmentFunction, run_segments
from samestep.torch_impl.step_context import StepContext


class Ranker(nn.Module):
    """The ranking model, ids [batch, tables] -> logits [batch]."""

    def __init__(self, spec: RankerSpec, context: StepContext) -> None:
        super().__init__()
        self.activate = ACTIVATIONS[spec.activation]
        self.tables = nn.ModuleList(nn.Embedding(rows, spec.embedding) for rows in spec.rows())
        sizes = (len(spec.rows()) * spec.embedding, spec.hidden, spec.hidden // 2)
        self.hidden = nn.ModuleList(nn.Linear(sizes[i], sizes[i + 1]) for i in range(2))
        self.output = nn.Linear(sizes[-1], 1)

    def segments(self) -> dict[str, SegmentFunction]:
        """Returns one segment for the tables, and one for each layer above them."""
        return {
            "tables": lambda x: torch.cat([table(x[:, i]) for i, table in enumerate(self.tables)], dim=1),
            "hidden/0": lambda x: self.activate(self.hidden[0](x)),
            "hidden/1": lambda x: self.activate(self.hidden[1](x)),
            "output": lambda x: self.output(x).squeeze(1),
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x)
