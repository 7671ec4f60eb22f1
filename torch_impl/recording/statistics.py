"""What a record keeps of tensors, computed in torch: the mirror of common/steps/projections.py, for many tensors at once.

Tensors of one shape are stacked while they are small: a call costs more than the numbers in it. Nothing is brought to the host
until `resolve`, so a GPU is not waited for within a step.
"""

from collections.abc import Sequence

import numpy as np
import torch

from samestep.common.steps.projections import PROJECTIONS, Piece, as_matrix, blocks, signs
from samestep.common.steps.record import stats_dtype
from samestep.torch_impl.recording.tiny import Found, Tiny, is_plain

_TINY_NUMBERS = 2**11
"""Of one tensor. Biases and norms are so many that on a CPU all of them are computed in one go."""
_STACKED_NUMBERS = 2**14
"""Of one tensor. Beyond that, stacking costs more than it saves."""
_SINGLE, _DOUBLE = torch.float32, torch.float64  # before float64 mode renames them
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Block:
    """A rectangle of a tensor's matrix that one process holds, and its signs."""

    def __init__(self, offset: int, shape: tuple[int, int], left: np.ndarray, right: np.ndarray) -> None:
        """Takes the signs.

        Args:
            offset: The offset of its first number in the piece.
            shape: Rows and columns.
            left: Of its rows, [rows, PROJECTIONS].
            right: Of its columns.
        """
        self.offset, self.shape, self.size = offset, shape, shape[0] * shape[1]
        is_line = 1 in shape
        self._signs = ((left * right),) if is_line else (left.T.copy(), right.T.copy())
        self._on: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}

    def flat_signs(self) -> np.ndarray:
        """Returns the signs of all numbers, [PROJECTIONS, numbers]."""
        if len(self._signs) == 1:
            return self._signs[0].T
        left_KR, right_KC = self._signs
        return (left_KR[:, :, None] * right_KC[:, None]).reshape(PROJECTIONS, self.size)

    def project(self, x_NS: torch.Tensor) -> torch.Tensor:
        """Projects several blocks at once: [N, numbers] -> [N, PROJECTIONS]."""
        key = x_NS.device, x_NS.dtype
        if key not in self._on:
            self._on[key] = [torch.from_numpy(each).to(device=x_NS.device, dtype=x_NS.dtype) for each in self._signs]
        signs = self._on[key]
        if len(signs) == 1:
            return x_NS @ signs[0]
        left_KR, right_KC = signs
        if len(x_NS) == 1:
            return (left_KR @ x_NS.view(self.shape)).mul_(right_KC).sum(1)[None]
        return torch.matmul(left_KR, x_NS.view(-1, *self.shape)).mul_(right_KC).sum(2)


class Statistics:
    """Computes the statistics of a fixed list of tensors, as often as they change."""

    def __init__(self, pieces: Sequence[Piece], is_float64: bool) -> None:
        """Makes the signs of all pieces; pieces that are alike share them, and are stacked while they are small.

        Args:
            pieces: What this process holds of each tensor.
            is_float64: Whether the record keeps float64.
        """
        shared: dict[tuple, _Block] = {}
        groups: dict[tuple, tuple[_Block, list[int]]] = {}
        self._parts, self._tiny = [], Tiny()
        for place, piece in enumerate(pieces):
            parts = _blocks(piece, shared)
            self._parts.append(len(parts))
            if len(parts) == 1 and parts[0].size <= _TINY_NUMBERS:
                self._tiny.add(place, parts[0].flat_signs())
            for block in parts:
                alone = () if block.size <= _STACKED_NUMBERS else (place,)
                groups.setdefault((id(block), *alone), (block, []))[1].append(place)
        self._groups, self._dtype = [*groups.values()], stats_dtype(is_float64)

    def __call__(self, values: Sequence[torch.Tensor | None]) -> "Pending":
        """Starts to compute the statistics.

        Args:
            values: The pieces, in the order of the constructor; None for those that are not there.
        """
        flat = [None if value is None else value.reshape(-1) for value in values]
        tiny = [place for place in self._tiny.signs if (value := flat[place]) is not None and is_plain(value)]
        found = [self._tiny(tiny, flat)] if tiny else []
        done = set(tiny)
        for block, places in self._groups:
            here = [(place, value) for place in places if place not in done and (value := flat[place]) is not None]
            kinds = {(value.dtype, value.device) for _, value in here}
            for kind in kinds:
                of_kind = (
                    here if len(kinds) == 1 else [each for each in here if (each[1].dtype, each[1].device) == kind]
                )
                parts = [
                    value if self._parts[place] == 1 else value[block.offset : block.offset + block.size]
                    for place, value in of_kind
                ]
                found.append(_compute(block, [place for place, _ in of_kind], parts))
        return Pending(len(values), self._dtype, [place for place, value in enumerate(values) if value is None], found)


class Pending:
    """Statistics that may still be computed on a device."""

    def __init__(self, size: int, dtype: np.dtype, absent: Sequence[int], found: Sequence[Found]) -> None:
        """Holds them.

        Args:
            size: The number of tensors.
            dtype: The dtype of a record.
            absent: The places of tensors that are not there.
            found: What was computed.
        """
        self._size, self._dtype, self._absent, self._found = size, dtype, absent, found
        self.scale: torch.Tensor | None = None  # divides the tensors

    @staticmethod
    def together(several: Sequence["Pending"]) -> np.ndarray:
        """Brings several to the host, each of other tensors."""
        first, *others = several
        stats = first.resolve()
        for other in others:
            present = np.setdiff1d(np.arange(len(stats)), other._absent)
            stats[present] = other.resolve()[present]
        return stats

    def resolve(self) -> np.ndarray:
        """Brings them to the host."""
        stats = np.zeros(self._size, self._dtype)
        projections, squares, bits = stats["projections"], stats["square"], stats["bits"]
        by_device: dict[tuple[torch.device, torch.dtype], list[Found]] = {}
        for each in self._found:
            by_device.setdefault((each[1].device, each[1].dtype), []).append(each)
        for found in by_device.values():
            places = [place for each in found for place in each[0]]
            norms = torch.cat([each[2] for each in found]).cpu().numpy().astype(np.float64)
            sums = [each[3] for each in found]
            np.add.at(
                projections, places, torch.cat([each[1] for each in found]).cpu().numpy()
            )  # a piece may be of several
            np.add.at(squares, places, norms**2)
            on_host = [each.cpu().numpy().view(np.uint64) if isinstance(each, torch.Tensor) else each for each in sums]
            np.add.at(bits, places, np.concatenate(on_host))
        if self.scale is not None:
            projections /= float(self.scale)
            squares /= float(self.scale) ** 2
        if self._absent:
            projections[self._absent] = np.nan
            squares[self._absent] = np.nan
        return stats


def _compute(block: _Block, places: list[int], members: Sequence[torch.Tensor]) -> Found:
    x_NS = torch.stack(members) if len(members) > 1 else members[0][None]
    bits = _sum_of_bits(x_NS)
    if x_NS.dtype not in (_SINGLE, _DOUBLE):
        x_NS = x_NS.to(_SINGLE)
    return places, block.project(x_NS), torch.linalg.vector_norm(x_NS, dim=1), bits


def _sum_of_bits(x_NS: torch.Tensor) -> np.ndarray | torch.Tensor:
    """Returns the sum of bits of each tensor: uint64 [N], or int64 [N] on a device."""
    size = x_NS.element_size()
    if x_NS.device.type == "cpu":  # NumPy sums unsigned numbers four times as fast as torch masks them
        return x_NS.view(_INTS[size]).numpy().view(_WORDS[size]).sum(axis=1, dtype=np.uint64)
    return x_NS.view(_INTS[size]).to(torch.int64).bitwise_and_(2 ** (8 * size) - 1 if size < 8 else -1).sum(1)


def _blocks(piece: Piece, shared: dict[tuple, _Block]) -> list[_Block]:
    if piece.is_flat:
        parts = blocks(piece)
        keys = [(row, rows, column, columns) for row, rows, column, columns in parts]
        sides = [(signs(0, row, rows), signs(1, column, columns)) for row, rows, column, columns in parts]
    elif 0 in piece.size:
        return []
    else:
        row, rows = (piece.start[0], piece.size[0]) if piece.shape else (0, 1)
        inner = tuple(zip(piece.start[1:], piece.size[1:], strict=True))
        keys = [(row, rows, piece.shape[1:], inner)]
        sides = [(signs(0, row, rows), _of_columns(piece, inner))]
    found, offset = [], 0
    for key, (left, right) in zip(keys, sides, strict=True):
        shape = len(left), len(right)
        found.append(shared.setdefault((offset, key), _Block(offset, shape, left, right)))
        offset += shape[0] * shape[1]
    return found


def _of_columns(piece: Piece, inner: Sequence[tuple[int, int]]) -> np.ndarray:
    """Returns the signs of the columns that a piece has, which need not be neighbours."""
    _, columns = as_matrix(piece.shape)
    every = signs(1, 0, columns)
    if piece.size[1:] == piece.shape[1:]:
        return every
    index = np.arange(columns).reshape(piece.shape[1:])[tuple(slice(start, start + size) for start, size in inner)]
    return every[index.ravel()]
