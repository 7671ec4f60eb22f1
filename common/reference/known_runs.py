"""Known mistakes of a whole run and of positions, each with a cell in which it matters."""

from samestep.common.mistakes.table import of_step
from samestep.common.reference import silent_positions as positions
from samestep.common.reference import silent_runs as runs
from samestep.common.reference.mutants import Mutant

GPT = "prose-gpt+layers=1+heads=2+width=8+context=8"

DATA_AND_RANKS = (
    Mutant(
        "same_order_each_epoch",
        of_step("same_order_each_epoch"),
        runs.same_order_each_epoch,
        "synthetic-mlp+width=8+examples=48",
    ),
    Mutant(
        "position_lost",
        of_step("position_lost"),
        runs.position_lost,
        GPT,
    ),
)
POSITIONS = (
    Mutant(
        "local_positions",
        "positions start from zero in each of {devices} parts of an example: each rank numbers its own part",
        positions.local_positions,
        GPT,
    ),
    Mutant(
        "local_attention",
        "attention sees only one of {devices} parts of an example at a time: nothing was exchanged",
        positions.local_attention,
        GPT,
    ),
    Mutant(
        "shifted_in_parts",
        "each of {devices} parts of an example but the last has lost its last target: targets were shifted within the parts",
        positions.shifted_in_parts,
        f"{GPT}+ignored=0.5",
    ),
)
