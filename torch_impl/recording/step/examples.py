"""Hashes the examples with which a model is called; the mirror of common/steps/rows.py.

The tensors of a call with as many rows as the first are hashed together; a packed batch is one row. A scalar, or a tensor with a
different number of rows, such as the edges of a graph, is not part of an example and has its own hash. The same holds for floats
next to a result that comes first, such as the first state of an RNN. Padding that an `attention_mask` or a `padding_mask` hides
counts as zero, for any padding value and on either side.

A tensor that requires a gradient, or that a model returned in this step, or with a gradient in the previous one, is a result and
not data, because its last bits may differ for the same data. The same holds for rows of a result in a batch that also contains
data, which a discriminator may be given. A detector's list of images is a list of examples, each together with its own targets.
"""

import functools
from collections.abc import Mapping, Sequence, Set

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from samestep.common.steps.argument_names import MOST_IN_WHOLE, WHOLE, names_of
from samestep.common.steps.rows import MANY_PIXELS
from samestep.torch_impl.recording.pieces import has_no_numbers, is_wrapped, local_of, unwrapped
from samestep.torch_impl.recording.step.arguments import Arguments
from samestep.torch_impl.recording.step.memory import Memory, Sums, on_host
from samestep.torch_impl.recording.step.padding import leading_of, padding_of, without_padding
from samestep.torch_impl.recording.step.results import Results
from samestep.torch_impl.recording.step.sparse import has_sparse_rows, values_of
from samestep.torch_impl.recording.step.sums import sums_of, together


class Examples:
    """Collects the hashes of the examples of a step."""

    def __init__(self) -> None:
        """Starts with no examples."""
        self._sums, self._num_taken, self._memory = list[Sums](), 0, Memory()
        self.results, self.arguments = Results(), Arguments()

    def forget(self) -> None:
        """Discards everything, for a new step."""
        self._sums, self._num_taken = [], 0
        self.results.forget()
        self.arguments.forget()

    @property
    def is_pending(self) -> bool:
        """Whether there were calls since `taken` was last called."""
        return len(self._sums) > self._num_taken

    def taken(self) -> list[Sums]:
        """Returns the sums of the calls since the last call of this method."""
        first, self._num_taken = self._num_taken, len(self._sums)
        return self._sums[first:]

    def add(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> list[torch.Tensor]:
        """Adds the examples of a call; returns the tensors that hold them.

        Args:
            arguments: The positional arguments of the module.
            keywords: The keyword arguments of the module.
        """
        if images := _images_in(arguments, keywords):
            return [each for image in images for each in self.add(image, {})]
        results = self.results.alive()
        every = _chosen(arguments, keywords, results, self.results.carried())
        given = {place: each for place, each in every.items() if each.ndim}
        if every and 0 not in every and tensors_in([*arguments, keywords])[0].ndim:
            # The first tensor is a result, and a state next to it is not an example.
            given = {place: each for place, each in given.items() if not each.is_floating_point()}
        if given:
            inputs = [*given.values()]
            is_packed = len(given) > 1 and inputs[0].ndim == 1 and not tensors_in(arguments)
            rows = (leading_of(inputs) if is_packed else inputs[0]).shape[0]
            given = {place: each for place, each in given.items() if each.shape[0] == rows}
        whole = {place: each for place, each in every.items() if place not in given and _is_small(each)}
        alone = self._add_rows([*given.values()], arguments, keywords, results) if given else []
        if len(alone) > 1 or whole:
            names = names_of((torch.Tensor, PackedSequence), arguments, keywords)
            if len(alone) > 1:
                self.arguments.add([names[place] for place in given], alone)
            for place, each in whole.items():
                self.arguments.add([names[place] + WHOLE], [sums_of(0, each.reshape(1, -1))])
        return [*given.values()]

    def _add_rows(
        self,
        inputs: list[torch.Tensor],
        arguments: Sequence[object],
        keywords: Mapping[str, object],
        results: Sequence[torch.Tensor],
    ) -> list[Sums]:
        """Adds the rows of the inputs of a call; returns the sums of each input."""
        rows, shown, hashed = inputs[0].shape[0], None, inputs
        if len(inputs) > 1:
            shown, positions = padding_of(arguments, keywords)
        if shown is not None:
            hashed = [without_padding(each, shown, each is positions) for each in inputs]
        out = self._memory.of(len(self._sums), rows)
        alone: list[Sums]
        if len(hashed) == 1:
            alone = [sums := sums_of(0, hashed[0], out)]
        else:
            alone = [sums_of(place, each, self.arguments.memory(rows)) for place, each in enumerate(hashed)]
            sums = functools.reduce(functools.partial(together, out=out), alone)
        if results and (is_data := _are_data(inputs[0], results)) is not None:
            sums = on_host(sums)[is_data]
            alone = [on_host(each)[is_data] for each in alone]
        self._sums.append(sums)
        return alone

    def given(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> list[torch.Tensor]:
        """Returns the tensors of a call that are not results.

        Args:
            arguments: The positional arguments.
            keywords: The keyword arguments.
        """
        chosen = _chosen(arguments, keywords, self.results.alive(), self.results.carried()).values()
        return [each for each in chosen if each.ndim]

    def add_result(self, result: object, arguments: Sequence[object]) -> None:
        """Remembers what a module returned, in either mode.

        Args:
            result: What the module returned.
            arguments: The arguments of the call.
        """
        results = [result] if isinstance(result, torch.Tensor) else tensors_in([result])
        memories: set[int] = set()
        if any(each.is_leaf or each._is_view() for each in results):  # otherwise they are in new memory
            given = tensors_in(arguments)
            memories = {memory_of(each) for each in given if each.layout is torch.strided and not has_no_numbers(each)}
        for each in results:
            self.results.add(each, memories)

    def end_step(self) -> tuple[bytes | None, dict[str, bytes]]:
        """Returns what a record keeps of the examples and of their arguments, and begins the next step.

        A record keeps the sum of each example, which is mixed when it is read; None if no call had examples.
        """
        sums, self._sums, self._num_taken = self._sums, [], 0
        self.results.end_step()
        return self._memory.bytes_of(sums) if sums else None, self.arguments.end_step()


def _chosen(
    arguments: Sequence[object], keywords: Mapping[str, object], results: Sequence[torch.Tensor], carried: Set[int]
) -> dict[int, torch.Tensor]:
    """Returns the tensors of a call that are not results, by their places among all tensors of the call."""
    inputs: dict[int, torch.Tensor] = {}
    if keywords:
        arguments = [*arguments, *(keywords[name] for name in sorted(keywords))]
    for place, each in enumerate(tensors_in(arguments)):
        if each.requires_grad:
            continue
        if type(each) is torch.Tensor and each.layout is torch.strided and not is_wrapped(each):
            if not each.dtype.is_complex and not each.is_nested:
                inputs[place] = each
        elif (inner := unwrapped(each)).ndim and _has_rows(each):
            inputs[place] = local_of(inner)
    if results or carried:
        memories = {*map(memory_of, results), *carried}
        return {place: each for place, each in inputs.items() if memory_of(each) not in memories}
    return inputs


def _images_in(arguments: Sequence[object], keywords: Mapping[str, object]) -> list[list[object]]:
    """Returns, for a detector called on a list of images, each image with its mappings from other lists; otherwise nothing.

    Args:
        arguments: The positional arguments of the module.
        keywords: The keyword arguments of the module.
    """
    images = arguments[0] if arguments else None
    if not isinstance(images, list) or not all(isinstance(each, torch.Tensor) and each.ndim == 3 for each in images):
        return []
    lists = [each for each in (*arguments[1:], *keywords.values()) if isinstance(each, list)]
    lists = [each for each in lists if len(each) == len(images) and all(isinstance(one, Mapping) for one in each)]
    if not lists and not (len(images) > 1 and all(_is_coloured(each) for each in images)):
        return []  # these are inputs with a row for each example
    rows = [[_with_row(one) for one in each] for each in (images, *lists)]
    return [[*each] for each in zip(*rows, strict=True)]


def _is_coloured(image: torch.Tensor) -> bool:
    return image.shape[0] == 3 and min(image.shape[1:]) >= MANY_PIXELS


def _with_row(value: object) -> object:
    """Returns what is given for one image as a batch with one row."""
    if isinstance(value, Mapping):
        return {name: _with_row(each) for name, each in value.items()}
    return value[None] if isinstance(value, torch.Tensor) else value


def _are_data(inputs: torch.Tensor, results: Sequence[torch.Tensor]) -> np.ndarray | None:
    """Returns which rows of a call are not results of a model; None if no result has the same shape and dtype.

    Args:
        inputs: The first input of the call.
        results: The results of models.
    """
    own = is_data = None
    for result in results:
        if (result.ndim, result.dtype) != (inputs.ndim, inputs.dtype) or not _has_rows(result):
            continue
        if result.shape[1:] == inputs.shape[1:]:
            own = on_host(sums_of(0, inputs)) if own is None else own
            is_other = ~np.isin(own, on_host(sums_of(0, local_of(unwrapped(result.detach())))))
            is_data = is_other if is_data is None else is_data & is_other
    return is_data


def _has_rows(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has rows of one length."""
    if tensor.layout != torch.strided:
        return has_sparse_rows(tensor)
    return not tensor.is_complex() and not tensor.is_nested


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() <= MOST_IN_WHOLE


def memory_of(tensor: torch.Tensor) -> int:
    """Returns the address of the numbers of a tensor."""
    inner = unwrapped(tensor)
    return (inner if inner.layout == torch.strided else values_of(inner)).untyped_storage().data_ptr()


def tensors_in(values: Sequence[object]) -> list[torch.Tensor]:
    """Returns the tensors in lists and mappings, the latter sorted by name, and the rows of packed sequences."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, PackedSequence):  # its lengths and its order are not examples
            found.append(value.data)
        elif isinstance(value, (list, tuple)):  # a union of types would be created each time
            found += tensors_in(value)
        elif isinstance(value, Mapping):
            found += tensors_in([value[name] for name in sorted(value, key=str)])
    return found
