"""Which examples a model was called on, computed in a graph: the mirror of common/steps/rows.py, but for its last mixing.

The tensors of a call that have as many rows as its first one are hashed together; any other, such as the edges of a
graph or a scalar, has a separate hash. What another model returned is a result and not data: its last bits may differ
even if the data are the same. Of a batch that combines results and data, such as the input of a GAN's discriminator,
only the data are taken. Results of earlier steps that a script has kept, such as features, are the data of a call that
is given nothing else. Floats that accompany a result that comes first, such as the first state of an RNN, are not
examples, and have a separate hash.
"""

import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record

from samestep.common.steps.argument_names import MOST_IN_WHOLE, WHOLE, names_of
from samestep.common.steps.rows import MANY_PIXELS, coefficients, is_channels_last, signed_coefficients
from samestep.tf_impl.recording.padding import padding_of, without_padding

_KINDS = (tf.Tensor, np.ndarray)
_ROWS_STAY = dict.fromkeys(("GatherV2", "Identity", "Reshape", "StopGradient", "StridedSlice"), 1) | {"ConcatV2": -1}
"""Operations that join or select rows without changing them -> where their inputs that hold rows end."""


class Results:
    """The results that models returned."""

    def __init__(self) -> None:
        """Starts without results."""
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._of_step: dict[int, weakref.ref[Any]] = {}

    def end_step(self) -> None:
        """Begins another step: what eager code made for the previous one can now be data, unless a tape still follows it."""
        for key, made in [*self._of_step.items()]:
            if (each := made()) is None or not record.should_record_backprop([each]):
                self._of_step.pop(key, None)

    def add(self, value: Any) -> None:
        """Remembers a result.

        Args:
            value: A tensor, or several.
        """
        for each in keras.tree.flatten(value):
            if tf.is_tensor(each):
                key = id(each)
                self._seen[key] = weakref.ref(each, lambda _, key=key: self._forget(key))
                if not tf.is_symbolic_tensor(each):
                    self._of_step[key] = self._seen[key]

    def _forget(self, key: int) -> None:
        self._seen.pop(key, None)
        self._of_step.pop(key, None)

    def has(self, tensor: Any) -> bool:
        """Returns whether a tensor is a result."""
        return id(tensor) in self._seen

    def is_earlier(self, tensor: Any) -> bool:
        """Returns whether a tensor is a result that eager code made for an earlier step."""
        return self.has(tensor) and not tf.is_symbolic_tensor(tensor) and id(tensor) not in self._of_step

    def data_in(self, tensor: Any) -> list[Any]:
        """Returns the data in a tensor: all of it, or what it was made from besides results.

        Args:
            tensor: The tensor; one that was computed eagerly does not say from what, so rows that a model returned are found
                by their numbers.
        """
        if tf.is_tensor(tensor) and not tf.is_symbolic_tensor(tensor):
            if not tf.executing_eagerly():  # a graph that is built holds it as a constant
                return [tensor]
            return [] if self.has(tensor) else self._data_rows_of(tensor)
        behind, found, seen = self._behind(tensor), [], set[int]()
        waiting = [tensor]
        while waiting:
            each = waiting.pop()
            if id(each) in seen or self.has(each):
                continue
            seen.add(id(each))
            if id(each) in behind:  # what is computed from results and noise, such as a VAE's sample, is neither
                waiting += reversed(_sources(each)[: _ROWS_STAY.get(each.op.type, 0)])
            else:
                found.append(each)
        return found

    def _data_rows_of(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        """Returns the rows of an eager tensor that no model returned within the step."""
        alike = [
            each
            for made in [*self._of_step.values()]
            if (each := made()) is not None
            and each.shape.rank
            and each.dtype == tensor.dtype
            and each.shape[1:].num_elements() == tensor.shape[1:].num_elements()
        ]
        # a tape follows what the script computed from a result, such as a VAE's sample
        whole = [] if self._of_step and record.should_record_backprop([tensor]) else [tensor]
        if not alike or not tensor.shape.rank or not (tensor.dtype.is_floating or tensor.dtype.is_integer):
            return whole
        with record.stop_recording():
            known = [_sums_as_they_lie(each, 0).numpy() for each in alike]
            is_data = ~np.isin(_sums_as_they_lie(tensor, 0).numpy(), np.concatenate(known))
            if is_data.all():
                return whole
            return [tf.boolean_mask(tensor, is_data)] if is_data.any() else []

    def _behind(self, tensor: Any) -> set[int]:
        """Returns the ids of those tensors, among one and all that it was computed from, that were computed from a result."""
        behind, waiting, seen = set[int](), [(tensor, iter(_sources(tensor)))], {id(tensor)}
        while waiting:  # a graph may be deeper than Python calls
            each, left = waiting[-1]
            source = next(left, None)
            if source is None:
                waiting.pop()
                if self.has(each) or any(id(source) in behind for source in _sources(each)):
                    behind.add(id(each))
            elif id(source) not in seen:
                seen.add(id(source))
                waiting.append((source, iter(() if self.has(source) else _sources(source))))
        return behind


def _sources(tensor: Any) -> list[Any]:
    """Returns what a tensor of a graph was computed from."""
    return [] if isinstance(tensor, np.ndarray) or not tf.is_symbolic_tensor(tensor) else list(tensor.op.inputs)


def inputs_of(arguments: Sequence[Any], keywords: Mapping[str, Any], results: Results) -> list[tuple[str, tf.Tensor]]:
    """Returns the tensors of a call that hold examples; then, each as one row, those without a row for each example.

    Each comes with its name; a part of an argument has the argument's name. Names of tensors without rows end in WHOLE.

    Args:
        arguments: The arguments of the model.
        keywords: The keywords of the model.
        results: The results, which are not data.
    """
    flat = keras.tree.flatten([list(arguments), [keywords[name] for name in sorted(keywords)]])
    given = [each for each in flat if isinstance(each, _KINDS)]
    names = names_of(_KINDS, arguments, keywords)
    names = names if len(names) == len(given) else [""] * len(given)  # in a structure of another kind
    named = [*zip(names, given, strict=True)]
    dense = [(name, each) for name, each in named if each.shape != ()]
    beside = [(name, own) for name, each in named if each.shape == () for own in results.data_in(each)]
    parts = [[(name, own) for own in results.data_in(each)] for name, each in dense]
    data = [pair for part in parts for pair in part]
    if dense and results.is_earlier(dense[0][1]):
        data = data or [(name, each) for name, each in dense if results.is_earlier(each)]
    elif dense and not parts[0]:  # of a result: a state is not an example
        beside += [(name, each) for name, each in data if tf.as_dtype(each.dtype).is_floating]
        data = [(name, each) for name, each in data if not tf.as_dtype(each.dtype).is_floating]
    shown, positions = padding_of(arguments, keywords)
    tensors = [(name, tf.convert_to_tensor(each), each is positions) for name, each in data if _is_of_numbers(each)]
    with_rows = [pair for pair in tensors if pair[1].shape.rank and pair[1].shape[0] == tensors[0][1].shape[0]]
    chosen = {id(each) for _, each, _ in with_rows}
    beside += [(name, each) for name, each, _ in tensors if id(each) not in chosen]
    return [
        (name, each if shown is None else without_padding(each, shown, are_positions))
        for name, each, are_positions in with_rows
    ] + [(name + WHOLE, tf.reshape(each, [1, -1])) for name, each in beside if name and _is_small(each)]


def _is_of_numbers(value: Any) -> bool:
    dtype = tf.as_dtype(value.dtype)
    return dtype.is_floating or dtype.is_integer or dtype.is_bool


def _is_small(value: Any) -> bool:
    return _is_of_numbers(value) and (tf.TensorShape(value.shape).num_elements() or 0) <= MOST_IN_WHOLE


def sums_of_words(inputs: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Sums words x coefficients.

    Args:
        inputs: Each [examples, ...].

    Returns:
        The sum of all, int64 [examples], to be mixed on the host; and that of each input.
    """
    each = [_sums(values, place) for place, values in enumerate(inputs)]
    return functools.reduce(_added, each), each


def _added(total: tf.Tensor, each: tf.Tensor) -> tf.Tensor:
    """Returns the sum, or `total` if the numbers of rows differ, which may not be known while the graph is built."""
    if total.shape.is_fully_defined() and each.shape.is_fully_defined():
        return total + each
    return tf.cond(tf.size(each) == tf.size(total), lambda: total + each, lambda: total)


def _sums(values: tf.Tensor, place: int) -> tf.Tensor:
    sizes = values.shape.as_list()
    if is_channels_last(sizes):
        values = tf.transpose(values, [0, 3, 1, 2])
    elif None in sizes[1:3] and is_channels_last([each or MANY_PIXELS for each in sizes]):
        turned = functools.partial(_sums_as_they_lie, tf.transpose(values, [0, 3, 1, 2]), place)
        are_images = tf.reduce_min(tf.shape(values)[1:3]) >= MANY_PIXELS
        return tf.cond(are_images, turned, functools.partial(_sums_as_they_lie, values, place))
    return _sums_as_they_lie(values, place)


def _sums_as_they_lie(values: tf.Tensor, place: int) -> tf.Tensor:
    if values.dtype.is_floating:
        words = tf.cast(tf.bitcast(tf.cast(values, tf.float32), tf.uint32), tf.int64)
    else:
        words = tf.cast(values, tf.int64)
    size = values.shape[1:].num_elements()
    words = tf.reshape(words, [tf.shape(words)[0], tf.reduce_prod(tf.shape(words)[1:]) if size is None else size])
    if size is None:
        index = tf.range(tf.shape(words, tf.int64)[1])
        return tf.reduce_sum(words * signed_coefficients(place, index, _shifted), axis=1)
    return tf.reduce_sum(words * coefficients(place, size).view(np.int64), axis=1)


def _shifted(values: tf.Tensor, places: int) -> tf.Tensor:
    return tf.bitwise.right_shift(values, tf.constant(places, tf.int64))
