"""Known mistakes of a whole run, of normalisation and of positions, each with a cell in which it matters."""

from samestep.common.mistakes.table import of_step
from samestep.common.reference import silent_positions as positions
from samestep.common.reference import silent_runs as runs
from samestep.common.reference.mutants import Mutant

GPT = "prose-gpt+layers=1+heads=2+width=8+context=8"
NORMED = "digits-mlp+width=8+norm=batch"

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
NORMALISATION = (
    Mutant(
        "local_statistics",
        of_step("local_statistics"),
        runs.local_statistics,
        f"{NORMED}+batch_norm=sync",
    ),
    Mutant(
        "running_statistics_lost",
        "the running statistics of batch normalisation were lost before this step",
        runs.statistics_lost,
        NORMED,
    ),
    Mutant(
        "statistics_of_last_microbatch",
        "the running statistics move by the last micro-batch only",
        runs.statistics_of_last_microbatch,
        f"{NORMED}+accumulation_steps=2",
    ),
    Mutant(
        "statistics_moved_twice",
        "the running statistics move twice: the forward pass that moves them was computed once more",
        runs.statistics_moved_twice,
        NORMED,
    ),
)
POSITIONS = (
    Mutant(
        "local_positions",
        "positions are numbered anew in each of {devices} parts of an example: they are those of a rank, not of the whole",
        positions.local_positions,
        GPT,
    ),
    Mutant(
        "local_attention",
        "attention sees only the positions of the same one of {devices} parts of an example: nothing was exchanged",
        positions.local_attention,
        GPT,
    ),
)
