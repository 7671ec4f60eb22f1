"""Context parallelism: the same step, what each rank keeps, what it sends, to the byte."""

import itertools
import threading

import numpy as np
import pytest

from samestep.common.batch import Chunk
from samestep.common.errors import ConfigError
from samestep.common.techniques import Techniques
from tests.cells import SIZED, slow
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.torch_impl.ledgers import obeys_its_law

pytestmark = pytest.mark.torch

QUICK = {"steps": 6, "dtype": "float64", "optimizer": "adamw"}
FEATURES = "+dropout=0.1+tied=true+ignored=0.3"
"""Keys of dropout, both users of the table of tokens, and the number of targets that count are all of the whole batch."""


@pytest.mark.parametrize("mesh", ["context=2", "data=2,context=2", *slow("context=4", "data=2,context=4")])
def test_it_is_the_same_step_and_obeys_its_law(run_cell: RunCell, mesh: str) -> None:
    result = run_cell("torch:cp", SIZED["transformer"], mesh=mesh, **QUICK)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    obeys_its_law(result)
    keeps_what_was_predicted(result)


@pytest.mark.parametrize("mesh", slow("data=2,context=2", "context=4"))
def test_all_that_is_counted_is_counted_over_the_whole_batch(run_cell: RunCell, mesh: str) -> None:
    techniques = Techniques(accumulation_steps=2, clip_norm=0.1)
    result = run_cell("torch:cp", f"{SIZED['transformer']}{FEATURES}", mesh=mesh, techniques=techniques, **QUICK)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


BY_KEYS = ("torch:cp+attention_exchange=gather", "torch:cp+attention_exchange=ring")
"""The rows whose attentions exchange keys and values."""


@pytest.mark.parametrize("mesh", ["data=2,context=2", *slow("context=2", "context=4", "data=2,context=4")])
@pytest.mark.parametrize("cell", BY_KEYS)
def test_keys_and_values_come_to_the_queries_as_predicted(run_cell: RunCell, cell: str, mesh: str) -> None:
    techniques = Techniques(accumulation_steps=2, clip_norm=0.1)
    result = run_cell(cell, f"{SIZED['transformer']}{FEATURES}", mesh=mesh, techniques=techniques, **QUICK)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    obeys_its_law(result)
    keeps_what_was_predicted(result)


@pytest.mark.parametrize("cell", slow(*BY_KEYS))
@pytest.mark.parametrize("technique", ["recompute=true", "precision=bf16", "compile=true"])
def test_techniques_compose_with_keys_in_blocks(run_cell: RunCell, cell: str, technique: str) -> None:
    dtype = "float32" if "precision" in technique else "float64"
    result = run_cell(f"{cell}+{technique}", SIZED["transformer"], devices=2, **QUICK | {"dtype": dtype})
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


@pytest.mark.slow
def test_heads_need_not_divide_where_keys_come(run_cell: RunCell) -> None:
    """Three heads of a Llama on four ranks, whose keys have one head."""
    workload = "prose-gpt+layers=1+heads=3+key_heads=1+width=24+context=16+style=llama"
    result = run_cell(BY_KEYS[1], workload, mesh="context=4", **QUICK)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)


@pytest.mark.parametrize("technique", slow("recompute=true", "precision=bf16", "compile=true"))
def test_techniques_change_what_is_kept_and_sent_as_predicted(run_cell: RunCell, technique: str) -> None:
    dtype = "float32" if "precision" in technique else "float64"
    result = run_cell(f"torch:cp+{technique}", SIZED["transformer"], devices=2, **QUICK | {"dtype": dtype})
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


def test_a_rank_of_two_keeps_half_and_the_outputs_of_its_attentions_once_more(run_cell: RunCell) -> None:
    whole, half = (
        run_cell(cell, SIZED["transformer"], devices=devices, parity=False, **QUICK).processes[0].activations_bytes
        for cell, devices in (("torch:single", 1), ("torch:cp", 2))
    )
    outputs = 2 * 48 * 8 * 32 * 8  # of each of two blocks, for 48 examples of 8 positions: 32 numbers in float64
    assert half - outputs == pytest.approx(whole / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("workload", "devices", "message"),
    [
        (SIZED["mlp"], 2, "a context axis cuts the sequences of our transformer, as in prose-gpt"),
        (SIZED["transformer"], 3, "a sequence of 16 positions does not divide among a context axis of 3"),
        (SIZED["transformer"], 8, "4 heads do not divide among a context axis of 8"),
    ],
)
def test_what_has_no_equal_parts_is_refused(run_cell: RunCell, workload: str, devices: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_cell("torch:cp", workload, devices=devices, batch_size=48)


def test_positions_that_are_not_two_pieces_for_each_rank_are_refused(run_cell: RunCell) -> None:
    with pytest.raises(ConfigError, match="18 positions are not 4 equal pieces"):
        run_cell(BY_KEYS[1], "prose-gpt+context=18", devices=2)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_see_what_is_causal_once_and_compute_as_many_scores(ranks: int) -> None:
    from samestep.torch_impl.axes.key_exchange import seen

    whole, of_rank = np.zeros((4 * ranks, 4 * ranks), np.int64), np.zeros(ranks, np.int64)
    places = [np.concatenate(Chunk(rank, ranks, is_zigzag=True).pieces(len(whole))) for rank in range(ranks)]
    for rank, other in itertools.product(range(ranks), repeat=2):
        queries, keys = (
            own[part] for own, part in zip((places[rank], places[other]), seen(rank, other, 4), strict=True)
        )
        scores = np.tril(np.ones((len(queries), len(keys)), np.int64), 0 if rank == other else len(keys))
        whole[np.ix_(queries, keys)] += scores
        of_rank[rank] += scores.sum()
    assert (whole == np.tri(len(whole))).all()
    assert len(set(of_rank)) == 1


def test_a_ring_keeps_what_one_device_keeps_of_half_the_positions(run_cell: RunCell) -> None:
    """Less than with heads, whose outputs are sent on: here the next layer takes what is kept."""
    whole, half = (
        run_cell(cell, SIZED["transformer"], devices=devices, parity=False, **QUICK).processes[0].activations_bytes
        for cell, devices in (("torch:single", 1), (BY_KEYS[1], 2))
    )
    assert half == pytest.approx(whole / 2, rel=1e-5)


def test_attention_on_exchanged_heads_has_the_bits_of_attention_on_one_device() -> None:
    """Two ranks as threads; what goes between them is handed over in memory."""
    import torch

    from samestep.torch_impl.axes.context import HeadExchange
    from samestep.torch_impl.models.transformer import causal_attention

    count, meeting, handed = 2, threading.Barrier(2), {}
    mixed: dict[int, torch.Tensor] = {}
    drawn = torch.randn(3, 5, 4, 6, 8, generator=torch.Generator().manual_seed(0))  # q, k, v of [B, H, T, K]

    class OfThread(HeadExchange):
        def __init__(self, rank: int) -> None:
            self._ranks, self.rank = count, rank

        def _exchange(self, parts: torch.Tensor) -> torch.Tensor:
            handed[self.rank] = parts
            meeting.wait(timeout=30)
            received = torch.stack([handed[other][self.rank] for other in range(count)])
            meeting.wait(timeout=30)
            return received

    def attend(rank: int) -> None:
        mixed[rank] = OfThread(rank)(*drawn.chunk(count, dim=3)[rank])

    threads = [threading.Thread(target=attend, args=(rank,)) for rank in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert torch.equal(torch.cat([mixed[rank] for rank in range(count)], dim=2), causal_attention(*drawn))
