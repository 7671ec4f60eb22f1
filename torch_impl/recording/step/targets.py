"""Finds what losses are computed from besides the outputs of modules: targets, and the data of scripts that call no module.

Nodes in the graph of a loss have saved targets. Targets may themselves be computed, like returns or a teacher's outputs, so of a
float only 8 binary digits are kept. If the graph has saved none, targets are the inputs of a loss that is a module, or what came
in the same batch of a DataLoader as the inputs of the model.
"""

import functools
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.autograd.graph import Node
from torch.nn.functional import pad

from samestep.common.steps.rows import signed
from samestep.torch_impl.recording.pieces import local_of
from samestep.torch_impl.recording.step.batches import Batches
from samestep.torch_impl.recording.step.losses import Roots
from samestep.torch_impl.recording.step.memory import Memory, Sums, on_host
from samestep.torch_impl.recording.step.sums import sums_of

_MOST_NODES, _MOST_MISSES = 12, 3
"""A loss function is near the end of the graph. If several passes have none there, the script computes losses by hand."""
_EXACT = 2**24
"""The number up to which float32 can count."""
_WHOLE = "whole"
_PLACE = 1024
"""The first place of targets, after the inputs of a call, because hashes depend on places."""
_INPUTS = {
    "AddmmBackward0": ("mat1", "mat2"),
    "BmmBackward0": ("self", "mat2"),
    "ConvolutionBackward0": ("input",),
    "EmbeddingBackward0": ("indices",),
    "IndexBackward0": ("indices",),
    "MmBackward0": ("self", "mat2"),
    "MulBackward0": ("self", "other"),
    "MvBackward0": ("self", "vec"),
}
"""Node -> the names of saved inputs. Other nodes save results, whose last bits may differ, or random masks."""


_Read = Callable[[Node], torch.Tensor | None]
_WEIGHTS = {
    "NllLossBackward0": "_raw_saved_weight",
    "NllLoss2DBackward0": "_raw_saved_weight",
    "BinaryCrossEntropyWithLogitsBackward0": "_raw_saved_pos_weight",
}
"""Node of a loss -> the name of its saved class weights. Weights of examples are left out, as they change with the batch."""


class Targets:
    """Collects the targets of each step."""

    def __init__(self) -> None:
        """Starts with no targets."""
        self._num_misses, self.batches, self._memory = 0, Batches(), Memory()
        self.forget()

    def forget(self) -> None:
        """Discards everything, for a new step."""
        self._sums: list[Sums] = []
        self._kinds: set[str] = set()
        self._weights: set[int] = set()
        self._given: list[torch.Tensor] = []
        self._beside: list[torch.Tensor] = []

    def give(self, tensors: Sequence[torch.Tensor]) -> None:
        """Notes the tensors, other than results, with which a loss module or a differentiated function is called."""
        self._given = [each for each in tensors if each.ndim and not each.is_complex()]

    def follow(self, inputs: Sequence[torch.Tensor]) -> None:
        """Notes that a model is called with the inputs of a batch."""
        if self.batches.last:
            self._beside = self.batches.beside(inputs) or self._beside

    def see(self, losses: Roots, calls: Sequence[Sums], has_modules: bool) -> None:
        """Handles the start of a backward pass, or gradients that `torch.func` has computed.

        Args:
            losses: The roots of the pass.
            calls: The sums of the examples of each call since the previous pass.
            has_modules: Whether the script calls modules.
        """
        found: list[torch.Tensor] = []
        if losses and self._num_misses < _MOST_MISSES:
            nodes = _nodes(losses, _MOST_NODES)
            for node in nodes:
                read, weights = _of_kind(type(node))
                if read is not None and (target := read(node)) is not None:
                    found.append(target)
                if weights and (weighed := _weighed(node, weights)) is not None:
                    self._weights.add(weighed)
            self._num_misses = 0 if found else self._num_misses + 1
            if len(nodes) >= _MOST_NODES and len(found) > 1:  # there may be more, and one node less may show another
                self._kinds.add(f"the first {len(found)}")
        found = found or self._given or self._beside
        if not has_modules and not self._given:
            found = [*_inputs_of(losses), *found]
        self._given, self._beside = [], []
        lengths = {each.shape[0] for each in found}
        beside = sums = calls[0] if len(calls) == 1 else _joined(calls, max(lengths, default=0))
        if not found or not (rows := max(lengths) if beside is None else beside.shape[0]):
            return
        if is_mixed := len(calls) != 1 and len(lengths) > 1:  # one loss may be of the first calls only
            found = [pad(each.reshape(len(each), -1), (0, 0, 0, rows - len(each))) for each in found if len(each)]
        out = self._memory.of(len(self._sums), rows)
        kinds = [f"{each.numel() / rows}" if each.is_floating_point() else _WHOLE for each in found]
        # The order of the graph depends on how losses are added.
        places = kinds if len(kinds) == 1 else sorted({*kinds})
        counted = kinds if len(kinds) == 1 else [f"{kinds.count(kind)} of {kind}" for kind in places]
        for kind, each in zip(kinds, found, strict=True):
            if (size := each.numel()) and size % rows == 0:
                rounded = each if kind is _WHOLE else each.to(torch.bfloat16)
                sums = sums_of(_PLACE + places.index(kind), rounded.reshape(rows, -1), out, sums)
        self._kinds.update([*counted, *["without inputs"] * (beside is None), *["mixed"] * is_mixed])
        if sums is not beside and sums is not None:
            self._sums.append(sums)

    def end_step(self) -> tuple[bytes | None, dict[str, int]]:
        """Returns what a record keeps of the targets and the counts of a step, and begins the next step.

        For each example with its targets, that is their sum, which is mixed when it is read; None if no loss had targets. The
        counts contain a hash of the kinds of targets, which differs if a loss has another term, and a hash of the class weights,
        if losses have any.
        """
        sums, kinds, weights = self._sums, self._kinds, self._weights
        self.forget()
        if not sums:
            return None, {}
        counts = {"target_kinds": _hash_of(frozenset(kinds))} | ({"class_weights": sum(weights)} if weights else {})
        return self._memory.bytes_of(sums), counts


def _joined(calls: Sequence[Sums], rows: int) -> Sums | None:
    """Returns the joined sums of the examples of several calls, if they are as many as rows of targets; otherwise None."""
    if len(calls) < 2 or sum(each.shape[0] for each in calls) != rows:
        return None
    are_tensors = all(isinstance(each, torch.Tensor) for each in calls)
    return torch.cat(calls) if are_tensors else np.concatenate([on_host(each) for each in calls])  # pyrefly: ignore[bad-argument-type]


@functools.lru_cache(16)
def _hash_of(kinds: frozenset[str]) -> int:
    return zlib.crc32(" ".join(sorted(kinds)).encode())


@functools.lru_cache(256)
def _of_kind(kind: type[Node]) -> tuple[_Read | None, str]:
    """Returns how to read the target that nodes of a kind have saved, and the name of their class weights."""
    name = kind.__name__
    read = _target if hasattr(kind, "_raw_saved_target") else _labels if hasattr(kind, "_raw_saved_targets") else None
    return _share if name == "MulBackward0" else read, _WEIGHTS.get(name, "")


def _weighed(node: Node, name: str) -> int | None:
    """Returns a hash of the class weights of a loss unless all are 1; None for weights on a GPU, which would have to wait."""
    saved = _saved(node, name)
    if saved is None or not saved.is_cpu or not bool((saved != 1).any()):
        return None
    return zlib.crc32(saved.to(torch.float32).contiguous().numpy().data)


def _target(node: Node) -> torch.Tensor | None:
    """Returns the target of a loss; classes count from 1, and ignored ones are 0, which does not change a hash."""
    target, ignored = _saved(node, "_raw_saved_target"), getattr(node, "_saved_ignore_index", None)
    if target is None or ignored is None:
        return target
    classes = (target if target.dtype is torch.int64 else target.to(torch.int64)) + 1
    return classes if _counts_all(node, target) else classes.masked_fill_(classes == signed(ignored) + 1, 0)


def _counts_all(node: Node, target: torch.Tensor) -> bool:
    """Returns whether no target is ignored, according to the count that a mean or a sum without class weights has saved."""
    counted = getattr(node, "_saved_total_weight", None)
    if counted is None or not counted.is_cpu or getattr(node, "_saved_weight", None) is not None:
        return False
    return counted.itemsize >= 4 and target.numel() < _EXACT and counted.item() == target.numel()


def _share(node: Node) -> torch.Tensor | None:
    """Returns the factor of log-probabilities, as in `kl_div` and `cross_entropy`; None for other products."""
    is_cross_entropy = any(each is not None and each.name() == "LogSoftmaxBackward0" for each, _ in node.next_functions)
    found = [_saved(node, f"_raw_saved_{name}") for name in _INPUTS["MulBackward0"]] if is_cross_entropy else []
    return next((each for each in found if each is not None), None)


def _inputs_of(losses: Roots) -> Iterator[torch.Tensor]:
    for node in _nodes(losses):
        for name in _INPUTS.get(node.name(), ()):
            saved = _saved(node, f"_raw_saved_{name}")
            if saved is not None:
                yield saved


def _nodes(losses: Roots, most: int | None = None) -> list[Node]:
    """Returns the nodes of a graph in order of distance from its end, without looking behind loss functions."""
    waiting = [each.grad_fn for each, _ in losses if each.grad_fn is not None]
    seen = {*waiting}
    for node in waiting:  # the list grows
        if most is not None and (len(waiting) >= most or _of_kind(type(node))[0] not in (None, _share)):
            continue
        new = [each for each, _ in node.next_functions if each is not None and each not in seen]
        seen.update(new)
        waiting += new
    return waiting


def _saved(node: Node, name: str) -> torch.Tensor | None:
    """Returns a tensor that a node has saved and that needs no gradient; None if hooks, such as checkpoint's, have packed it.

    Args:
        node: The node.
        name: The name of the attribute; a constant, as looking up a newly built string takes several times as long.
    """
    raw = getattr(node, name, None)
    if isinstance(raw, (tuple, list)):
        raw = next((each for each in raw if each is not None), None)
    if raw is None or getattr(raw, "unpack_hook", raw) is not None:
        return None
    found = raw.data
    is_given = isinstance(found, torch.Tensor) and found.ndim and not found.requires_grad and not found.is_complex()
    return (found if type(found) is torch.Tensor else local_of(found)) if is_given else None


def _labels(node: Node) -> torch.Tensor | None:
    """Returns the labels of a CTC loss, with zeros after the length of each; the lengths of the inputs are not targets."""
    labels = _saved(node, "_raw_saved_targets")
    if labels is None or labels.ndim != 2:
        return labels
    lengths = torch.as_tensor(node._saved_target_lengths, device=labels.device)  # type: ignore[attr-defined]
    return labels.masked_fill(torch.arange(labels.shape[1], device=labels.device) >= lengths[:, None], 0)
