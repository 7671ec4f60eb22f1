"""What an optimizer keeps, in bytes: of some numbers of parameters that are cut, or of whole parameters."""

import functools
import math
from collections.abc import Iterable

from samestep.common.request import DTYPES
from samestep.common.strategy import Run
from samestep.common.workload.models.reached import num_trained, trained
from samestep.common.workload.models.spec import ModelSpec, Param
from samestep.common.workload.optimizers.spec import OptimizerSpec


def optimizer_bytes(run: Run, elements: int) -> int:
    """The bytes of optimizer state of some numbers of parameters: slots, and master weights if the weights have two bytes.

    Args:
        run: What is trained.
        elements: How many numbers; of the state of all parameters that are trained, they have their share.

    References:
        Rajbhandari et al., arXiv 1910.02054, section 3.1 (K = 12 for Adam).
    """
    kept, learning = _kept(run.workload.model, run.optimizer)
    masters = elements if run.weights is not None else 0
    return (elements * kept // max(1, learning) + masters) * DTYPES[run.dtype]


@functools.lru_cache(maxsize=8)
def _kept(model: ModelSpec, optimizer: OptimizerSpec) -> tuple[int, int]:
    """Returns the numbers that an optimizer keeps for a whole model, and those of the parameters that it trains."""
    learning = trained(model.params()).values()
    kept = sum(math.prod(shape) for param in learning for shape in optimizer.state(param).values())
    return kept, num_trained(learning)


def state_bytes(run: Run, params: Iterable[Param]) -> int:
    """Returns the bytes of optimizer state of some whole parameters, which need not all have as much of it.

    Args:
        run: What is trained.
        params: The parameters; frozen ones have none.
    """
    learning = [param for param in params if not param.frozen]
    kept = sum(math.prod(shape) for param in learning for shape in run.optimizer.state(param).values())
    masters = num_trained(learning) if run.weights is not None else 0
    return (kept + masters) * DTYPES[run.dtype]
