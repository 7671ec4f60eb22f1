"""Applies the features of a model to models and programs; no other module of this mirror names a feature."""

from samestep.common.features.batch_norm.statistics import examples_of_statistics as examples_together
from samestep.common.features.batch_norm.statistics import share_left
from samestep.common.reference.features.batch_norm import batch_norm as within
from samestep.common.reference.features.batch_norm import move_buffers
from samestep.common.reference.features.dropout import dropout as behind

__all__ = ["behind", "examples_together", "move_buffers", "share_left", "within"]
