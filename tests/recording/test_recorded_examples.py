"""Both recorders hash the examples of a call as the statement in NumPy says, and take nothing else for examples."""

from typing import Any

import numpy as np
import pytest

from samestep.common.steps.rows import INPUT_STRIDE, coefficients, hash_rows, mix


def hashes_of(examples: Any) -> list[int]:
    """Returns the hashes that are read from a record of these examples."""
    return mix(np.frombuffer(examples.end_step()[0], np.uint64)).tolist()


@pytest.mark.torch
def test_rows_are_hashed_as_the_statement_says() -> None:
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    inputs, ids = torch.randn(4, 3, 2), torch.tensor([[1, -1], [2, 3], [0, 0], [1, -1]])
    examples = Examples()
    examples.add([inputs], {"b": ids, "a": torch.ones(4, dtype=torch.bool), "other": torch.ones(3)})
    expected = hash_rows([inputs.numpy(), np.ones((4, 1), bool), ids.numpy()])
    assert hashes_of(examples) == expected.tolist()
    images = torch.randn(4, 8, 8, 3)
    examples.forget()
    examples.add([images], {})
    assert hashes_of(examples) == hash_rows([images.numpy()]).tolist()
    many, more = torch.randn(64, 3), torch.arange(2)
    examples.forget()
    examples.add([many], {})
    examples.add([more], {})
    both = [*hash_rows([many.numpy()]).tolist(), *hash_rows([more.numpy()]).tolist()]
    assert hashes_of(examples) == both
    result = torch.nn.Linear(2, 2)(torch.ones(4, 2))
    examples.forget()
    examples.add_result(result, ())
    examples.add([result.detach()], {})
    assert not examples.taken()
    data = torch.randn(3, 2)
    examples.forget()
    examples.add_result(result, ())
    examples.add([torch.cat([result.detach(), data])], {"labels": torch.arange(7)})
    assert hashes_of(examples) == hash_rows([data.numpy(), np.arange(4, 7)[:, None]]).tolist()
    loss, prices = torch.tensor(0.5), torch.rand(3)
    examples.forget()
    examples.add_result(loss, ())
    examples.add([prices], {})
    assert hashes_of(examples) == hash_rows([prices.numpy()[:, None]]).tolist()


@pytest.mark.torch
def test_a_result_is_known_by_its_memory() -> None:
    """A generator's output of which a script keeps a view alone is no data; a view of data that a module returns is."""
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    examples, data = Examples(), torch.randn(4, 3, 2)
    result = torch.nn.Linear(2, 6)(data[:, 0])
    examples.add_result(result, [data])
    fake = result.detach()
    del result
    examples.add([fake], {})
    assert not examples.taken()
    examples.add([torch.cat([fake, data.flatten(1)])], {})
    assert hashes_of(examples) == hash_rows([data.numpy()]).tolist()
    del fake
    examples.forget()
    examples.add_result(flat := torch.nn.Flatten()(data), [data])
    examples.add([flat], {})
    assert hashes_of(examples) == hash_rows([data.numpy()]).tolist()


@pytest.mark.torch
def test_packed_sequences_are_their_rows_in_whatever_order_they_are_packed() -> None:
    """How long they are is no example: there are as many lengths as steps of the longest one, and maybe as many as sequences."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence

    from samestep.torch_impl.recording.step.examples import Examples

    padded, lengths, order = torch.randn(3, 3, 2), torch.tensor([2, 3, 1]), torch.tensor([1, 0, 2])
    rows = np.concatenate([each[:length].numpy() for each, length in zip(padded, lengths, strict=True)])
    examples = Examples()
    for inputs, their, is_sorted in ((padded, lengths, False), (padded[order], lengths[order], True)):
        examples.forget()
        examples.add([pack_padded_sequence(inputs, their, batch_first=True, enforce_sorted=is_sorted)], {})
        assert sorted(hashes_of(examples)) == sorted(hash_rows([rows]).tolist())
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    examples.forget()
    examples.add([packed], {"other": torch.arange(len(rows))})
    assert list(examples.arguments.end_step()) == ["0", "other"]
    examples.forget()
    examples.add([packed._replace(data=packed.data.requires_grad_())], {})
    assert examples.end_step()[0] is None


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_examples_count_as_dense_ones() -> None:
    """PyTorch's example of a graph network gives its model nothing else."""
    torch = pytest.importorskip("torch")
    from samestep.torch_impl.recording.step.examples import Examples

    dense = torch.relu(torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)))
    counts = (dense[:, :, 0] * 3).to(torch.int64)
    expected = hash_rows([dense.numpy(), counts.numpy()]).tolist()
    for pair in ((dense, counts), (dense.to_sparse(), counts.to_sparse()), (dense.to_sparse(), counts.to_sparse_csr())):
        examples = Examples()
        examples.add_result(counts.to_sparse(), ())
        examples.add(pair, {})
        assert hashes_of(examples) == expected
    result = dense.to_sparse()
    examples.forget()
    examples.add_result(result, ())
    examples.add([result], {})
    assert not examples.taken()
    images = torch.relu(torch.randn(2, 8, 7, 3))
    examples.forget()
    examples.add([images.to_sparse()], {})
    assert hashes_of(examples) == hash_rows([images.numpy()]).tolist()


def test_sparse_examples_may_be_wider_than_memory() -> None:
    """Only the coefficients of the numbers that there are are computed; the last is the first of the next input."""
    torch = pytest.importorskip("torch")
    from samestep.torch_impl.recording.step.sums import sums_of

    places = [[0, 1, 1], [5, 0, INPUT_STRIDE]]
    wide = torch.sparse_coo_tensor(places, [3, -1, 2], (2, INPUT_STRIDE + 1), check_invariants=True)
    first, (last,) = coefficients(0, 8).tolist(), coefficients(1, 1).tolist()
    assert [each % 2**64 for each in sums_of(0, wide).tolist()] == [3 * first[5] % 2**64, (2 * last - first[0]) % 2**64]


def test_inputs_of_many_sizes_share_their_coefficients() -> None:
    """A detector is given images of hundreds of sizes, and kept the coefficients of each."""
    assert all(np.shares_memory(coefficients(0, size), coefficients(0, 1024)) for size in (600, 1000))


@pytest.mark.tf
def test_of_a_batch_of_results_and_data_the_data_are_taken_in_a_graph() -> None:
    import tensorflow as tf

    from samestep.tf_impl.recording.examples import Results, inputs_of

    results, found = Results(), list[list[str]]()

    @tf.function
    def step(data: tf.Tensor) -> tf.Tensor:
        fake = tf.tanh(data)
        results.add(fake)
        scaled = 2.0 * data
        for batch in (tf.concat([tf.stop_gradient(fake), data], 0), tf.concat([scaled, data], 0), fake, 2.0 * fake):
            found.append([each.name.partition(":")[0] for _, each in inputs_of([batch], {}, results)])
        return fake

    step(tf.ones((2, 3)))
    assert found == [["data"], ["concat_1"], [], []]


@pytest.mark.tf
def test_of_an_eager_batch_of_results_and_data_the_data_are_taken() -> None:
    """Else `run_eagerly` gave a GAN other examples than its graph."""
    import tensorflow as tf

    from samestep.tf_impl.recording.examples import Results, inputs_of

    results, data = Results(), tf.random.normal((2, 3))
    fake = tf.tanh(data)
    results.add([fake, tf.constant(0.5)])
    for batch, expected in (
        (tf.concat([fake, data], 0), [data]),
        (data, [data]),
        (fake, []),
        (tf.concat([fake] * 2, 0), []),
    ):
        found = inputs_of([batch], {}, results)
        assert [each.numpy().tolist() for _, each in found] == [each.numpy().tolist() for each in expected]


@pytest.mark.tf
def test_results_that_an_eager_script_keeps_are_data_of_later_steps() -> None:
    """Features are computed once and then given in another order, or to other ranks: that was not seen."""
    import tensorflow as tf

    from samestep.tf_impl.recording.examples import Results, inputs_of

    results, source, state = Results(), tf.Variable(tf.random.normal((5, 3))), tf.ones((2, 4))
    with tf.GradientTape() as tape:
        followed = tf.tanh(2.0 * source[:2])
        with tape.stop_recording():
            features = tf.tanh(source)
        results.add([features, followed, state])
        some = tf.gather(features, [3, 1])
        assert inputs_of([some], {}, results) == inputs_of([features], {}, results) == []
        results.end_step()
    for batch, expected in (([some], [some]), ([features], [features]), ([some, state], [some]), ([followed], [])):
        found = inputs_of(batch, {}, results)
        assert [each.numpy().tolist() for _, each in found] == [each.numpy().tolist() for each in expected]


@pytest.mark.tf
def test_constants_of_a_graph_are_data_beside_eager_results() -> None:
    """A result with rows of that shape ended the record."""
    import tensorflow as tf

    from samestep.tf_impl.recording.examples import Results, inputs_of

    results, constant = Results(), tf.random.normal((2, 3))
    features, result = tf.random.normal((2, 3)), tf.tanh(constant)
    results.add([features, result])
    read = tf.function(lambda: [own for _, own in inputs_of([constant, features], {}, results)], autograph=False)
    assert [each.numpy().tolist() for each in read()] == [constant.numpy().tolist(), features.numpy().tolist()]


def test_images_are_the_same_wherever_their_channels_are() -> None:
    images = np.random.default_rng(0).normal(size=(4, 3, 7, 6)).astype(np.float32)
    first = hash_rows([images])
    assert (hash_rows([np.moveaxis(images, 1, 3)]) == first).all()
    assert (hash_rows([np.swapaxes(images, 2, 3)]) != first).all()
    assert len(set(first.tolist())) == 4
