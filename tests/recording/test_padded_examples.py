"""What is an example of texts: padding is no part of one, and a packed batch is one."""

import numpy as np
import pytest

from samestep.common.steps.rows import hash_rows
from tests.recording.test_recorded_examples import hashes_of


@pytest.mark.torch
@pytest.mark.parametrize("name", ["attention_mask", "padding_mask"])
@pytest.mark.parametrize("is_mapping", [False, True])
def test_padding_is_no_part_of_an_example(name: str, is_mapping: bool) -> None:
    """Micro-batches are padded less far than whole batches, with labels of -100 that losses leave out."""
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    ids, labels = torch.tensor([[5, 6, 7, 9], [3, 4, 9, 9]]), torch.tensor([[5, 6, 7, -100], [3, 4, -100, -100]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    whole, cut = Examples(), Examples()

    def add(examples: Examples, given: dict[str, torch.Tensor]) -> None:
        examples.add(*(([given], {}) if is_mapping else ([], given)))

    given = {name: mask, "input_ids": ids, "labels": labels}
    add(whole, given)
    for row, length in ((0, 3), (1, 2)):
        add(cut, {name: each[row : row + 1, :length] for name, each in given.items()})
    expected = hashes_of(cut)
    assert hashes_of(whole) == expected
    add(whole, given | {"labels": labels.roll(1)})
    assert hashes_of(whole) != expected


@pytest.mark.torch
@pytest.mark.parametrize("is_in_front", [False, True])
def test_neither_the_side_of_padding_nor_the_positions_in_it_are_part_of_an_example(is_in_front: bool) -> None:
    """As in batches that a model goes on with, which are padded in front, or where places are counted over padding."""
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    def batch(rows: list[list[int]], length: int) -> dict[str, torch.Tensor]:
        sides = [((length - len(row)) * is_in_front, (length - len(row)) * (not is_in_front)) for row in rows]
        ids = [[0] * front + row + [0] * behind for row, (front, behind) in zip(rows, sides, strict=True)]
        places = [[1] * front + [*range(length - front)] for front, _ in sides]
        mask = [[0] * front + [1] * len(row) + [0] * behind for row, (front, behind) in zip(rows, sides, strict=True)]
        return {
            name: torch.tensor(each)
            for name, each in (("attention_mask", mask), ("input_ids", ids), ("position_ids", places))
        }

    rows, whole, parts = [[5, 6, 7, 8], [3, 4], [9, 2, 1]], Examples(), Examples()
    whole.add([], batch(rows, 5))
    for row in rows:
        parts.add([], batch([row], len(row)))
    found = hashes_of(parts)
    assert hashes_of(whole) == found
    parts.add([], batch([[4, 3]], 2))
    assert not {*hashes_of(parts)} & {*found}


@pytest.mark.torch
def test_a_packed_batch_is_one_example() -> None:
    """It is a row of many texts, and says where each of them begins."""
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    examples, starts = Examples(), torch.tensor([0, 3, 5, 9], dtype=torch.int32)
    ids = torch.arange(9)[None]
    examples.add([], {"cu_seq_lens_q": starts, "input_ids": ids, "labels": ids})
    assert hashes_of(examples) == hash_rows([ids.numpy(), ids.numpy()]).tolist()
    examples.forget()
    examples.add([], {"words": torch.arange(3)})
    assert hashes_of(examples) == hash_rows([np.arange(3)[:, None]]).tolist()


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["inverted", "additive", "empty"])
def test_a_mask_of_another_meaning_hides_no_data(kind: str) -> None:
    """Scripts also call so what is true where it hides, or is added to scores."""
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    ids = torch.tensor([[5, 6, 7, 8], [3, 4, 9, 9], [5, 2, 1, 8], [3, 1, 9, 9]])
    is_padded = ids == 9
    mask = {
        "inverted": is_padded,
        "additive": torch.zeros(4, 4).masked_fill(is_padded, -float("inf")),
        "empty": torch.zeros(4, 4, dtype=torch.int64),
    }[kind]
    examples = Examples()
    examples.add([], {"attention_mask": mask, "input_ids": ids})
    assert len(set(hashes_of(examples))) == 4


@pytest.mark.torch
def test_a_graph_is_read_by_its_nodes() -> None:
    """Its edges are a tensor of two rows, and the number of the graph of each node is one of a single dimension."""
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    examples, graphs, nodes = Examples(), torch.zeros(5, dtype=torch.int64), torch.randn(5, 3)
    examples.add([], {"batch": graphs, "edge_index": torch.tensor([[0, 1], [1, 2]]), "x": nodes})
    assert hashes_of(examples) == hash_rows([graphs.numpy()[:, None], nodes.numpy()]).tolist()


@pytest.mark.tf
@pytest.mark.parametrize("is_in_front", [False, True])
@pytest.mark.parametrize("kind", ["eager", "graph", "mapping"])
def test_padding_is_no_part_of_an_example_of_keras(kind: str, is_in_front: bool) -> None:
    """Also where a graph is built for batches of any length, and where the model is given a mapping."""
    import tensorflow as tf

    from samestep.tf_impl.recording.examples import Results, inputs_of, sums_of_words

    results = Results()

    def sums(given: dict[str, tf.Tensor]) -> tf.Tensor:
        inputs = inputs_of([given], {}, results) if kind == "mapping" else inputs_of([], given, results)
        return sums_of_words([each for _, each in inputs])[0]

    any_length = tf.TensorSpec((None, None), tf.int64)
    names = ("attention_mask", "input_ids", "other_ids", "position_ids")
    of = sums if kind == "eager" else tf.function(sums, input_signature=[dict.fromkeys(names, any_length)])

    def hashed(rows: list[list[int]], length: int) -> list[int]:
        table: dict[str, list[list[int]]] = {name: [] for name in names}
        for row in rows:
            front, behind = sorted([0, length - len(row)], reverse=is_in_front)
            table["attention_mask"].append([0] * front + [1] * len(row) + [0] * behind)
            table["input_ids"].append([9] * front + row + [9] * behind)
            table["position_ids"].append([1] * front + [*range(length - front)])
            table["other_ids"].append([row[0]])  # which the mask does not hide
        return of({name: tf.constant(each, tf.int64) for name, each in table.items()}).numpy().tolist()

    rows = [[5, 6, 7, 8], [3, 4], [9, 2, 1]]
    whole = hashed(rows, 5)
    assert whole == [each for row in rows for each in hashed([row], len(row))]
    assert not {*hashed([[4, 3], [3, 4, 5]], 3)} & {*whole}
