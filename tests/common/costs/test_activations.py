"""Predicted activations against the textbook; the runs' own tests hold them against what is measured."""

import dataclasses

import pytest

from samestep.common.costs.saved_activations.activations import (
    activation_bytes,
    pipeline_activation_bytes,
    textbook_block_bytes,
)
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.workload.models.transformer import TransformerSpec

SPEC = TransformerSpec(layers=6, heads=8, width=64, context=32)
WORKLOAD = "synthetic-gpt+layers={}+heads=8+width=64+context=32"
ROWS = 24
TOKENS = ROWS * SPEC.context


def run_of(layers: int = 6, **fields: object) -> Run:
    return parse(RunConfig(workload=WORKLOAD.format(layers), **{"batch_size": ROWS, **fields}))


def block_bytes(**fields: object) -> int:
    """What one block more keeps."""
    return activation_bytes(run_of(7, **fields)) - activation_bytes(run_of(6, **fields))


@pytest.mark.parametrize(
    ("parts", "sequence", "formula"),
    [
        (1, False, lambda sbh, ratio, t: sbh * (34 + 5 * ratio)),
        (4, False, lambda sbh, ratio, t: sbh * (10 + 24 / t + 5 * ratio / t)),
        (4, True, lambda sbh, ratio, t: sbh / t * (34 + 5 * ratio)),
    ],
)
def test_the_textbooks_formula_is_korthikantis(parts, sequence, formula) -> None:
    """Equations 1, 2 and 4 of arXiv 2205.05198, which are for numbers of two bytes."""
    ratio = SPEC.heads * SPEC.context / SPEC.width
    wanted = formula(TOKENS * SPEC.width, ratio, parts)
    assert textbook_block_bytes(SPEC.facts.sizes, ROWS, 2, parts, sequence) == pytest.approx(wanted)


@pytest.mark.parametrize(("parts", "sequence"), [(1, False), (2, False), (4, False), (4, True)])
def test_a_block_keeps_the_textbooks_numbers_without_masks_and_scores(parts: int, sequence: bool) -> None:
    """Beside them a fused attention keeps one number a head and position, and each norm two a position.

    Where the sequence is split, torch also keeps what it gathered for the two pairs, which Megatron gathers again.
    """
    masks = TOKENS * SPEC.width * 2 / (parts if sequence else 1)
    scores = SPEC.heads * SPEC.context**2 * ROWS * 9 / parts
    extra = 4 * TOKENS * (SPEC.heads / parts + 4 / (parts if sequence else 1))
    gathered = 2 * TOKENS * SPEC.width * 4 * (1 - 1 / parts) if sequence else 0
    fields = {"strategy": "tp", "mesh": f"tensor={parts}", "options": {"sequence_parallel": sequence}}
    assert (
        block_bytes(**fields)
        == textbook_block_bytes(SPEC.facts.sizes, ROWS, 4, parts, sequence) - masks - scores + extra + gathered
    )


def test_tensorflow_keeps_every_score_and_three_tensors_a_gelu() -> None:
    more = block_bytes(framework="tf") - block_bytes()
    a_position = 10 * SPEC.width + SPEC.heads * SPEC.context + 2 - (SPEC.heads + 4)
    assert more == 4 * TOKENS * a_position + SPEC.context**2  # the mask


def test_accumulation_keeps_less_in_torch_and_the_same_in_tensorflow() -> None:
    pieces = Techniques(accumulation_steps=4)
    torch, tf = (
        [activation_bytes(run_of(framework=f, techniques=t)) for t in (Techniques(), pieces)] for f in ("torch", "tf")
    )
    assert torch[1] == pytest.approx(torch[0] / 4, rel=0.001)
    assert tf[1] == pytest.approx(tf[0], rel=0.01)


def test_a_shard_of_the_batch_keeps_its_share() -> None:
    whole = activation_bytes(run_of())
    assert activation_bytes(run_of(strategy="ddp", devices=4)) == pytest.approx(whole / 4, rel=0.001)


def test_1f1b_keeps_fewer_micro_batches_than_gpipe_the_later_the_rank() -> None:
    run = run_of(strategy="pp", devices=4, options={"microbatches": 8})
    inner = {name: pipeline_activation_bytes(run, name, 8)[1:3] for name in ("gpipe", "1f1b")}
    assert [one * count // 8 for one, count in zip(inner["gpipe"], (3, 2), strict=True)] == inner["1f1b"]


def test_what_nobody_wrote_down_is_not_predicted() -> None:
    run = run_of()
    assert activation_bytes(dataclasses.replace(run, framework="numpy")) is None
