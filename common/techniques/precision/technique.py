"""Mixed precision as a technique."""

from collections.abc import Iterator

from samestep.common.ledger import Send
from samestep.common.request import DTYPES
from samestep.common.strategy import Run
from samestep.common.techniques.precision.bound import find_flaw, gradient_error
from samestep.common.techniques.precision.flag import PrecisionFlags
from samestep.common.techniques.precision.refusals import check_precision
from samestep.common.techniques.technique import Technique


def skip_agreement(run: Run) -> Iterator[Send]:
    """Predicts the number by which ranks agree whether to take a step in fp16: that of those whose gradients overflowed."""
    if run.techniques.precision == "fp16" and run.num_devices > 1:
        yield Send("update", "all_reduce", run.mesh.only_axis, run.num_devices, DTYPES["float32"])


def emulation(run: Run) -> str:
    """Returns what CPU cores compute in the place of units for two bytes: the same numbers, at another speed."""
    return f"--precision {run.techniques.precision} on CPU cores, whose speed is not a GPU's"


PRECISION = Technique(
    flags=PrecisionFlags,
    refuse=check_precision,
    gradient_error=gradient_error,
    find_flaw=find_flaw,
    sends_before_update=skip_agreement,
    emulation_on_cpus=emulation,
    in_textbooks=("state",),
)
