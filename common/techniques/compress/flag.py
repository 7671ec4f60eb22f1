"""The flags of compression."""

import dataclasses

from samestep.common.flags import MAX_FACTOR, MAX_STEPS, flag

COMPRESSIONS = ("fp16", "bf16", "int8", "powersgd")


@dataclasses.dataclass(frozen=True)
class CompressFlags:
    """The flags that choose the form in which gradients are exchanged."""

    compress: str | None = flag(
        None,
        "exchange compressed gradients; int8 and powersgd add their compression error to the gradients of the"
        " next step (default: uncompressed)",
        choices=COMPRESSIONS,
    )

    compress_rank: int = flag(
        4, "columns of each of the two factors of a gradient that powersgd exchanges", least=1, most=MAX_FACTOR
    )
    compress_warmup_steps: int = flag(
        0,
        "number of steps from the start of training that exchange uncompressed gradients, before powersgd begins",
        least=0,
        most=MAX_STEPS,
    )
