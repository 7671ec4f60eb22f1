"""PowerSGD: sends two low-rank factors of the gradient of a matrix, and adds their error to the next gradient."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist

from samestep.common.program import RESIDUAL, Arrays
from samestep.common.strategy import Run
from samestep.common.techniques.compress.pieces import matrix_shape
from samestep.common.techniques.compress.statement import FACTOR, LEAST_COLUMN, initial_factor
from samestep.torch_impl.weights import Weight


class Factors:
    """The exchanges of one rank, which send factors of matrices in the neutral layout; other gradients are sent unchanged."""

    def __init__(self, run: Run, weights: Mapping[str, Weight]) -> None:
        self._run, self._weights = run, weights
        self._ranks, self._rank = dist.get_world_size(), dist.get_rank()
        self._shapes = {name: self._shape(weight) for name, weight in weights.items()}
        self._initial = {name: self._drawn(name, shape[1]) for name, shape in self._shapes.items() if shape}
        self._residuals: dict[str, torch.Tensor] = {}
        """Parameter -> residual [rows, columns]."""
        self._factors: dict[str, torch.Tensor] = {}
        """Parameter -> factor Q of the last exchange, [columns, rank]."""

    def _shape(self, weight: Weight) -> tuple[int, int] | None:
        neutral = weight.parameter.permute(weight.permutation).shape
        return matrix_shape(neutral, self._run.techniques.compress_rank)

    def exchange(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Sums gradients, given by name, over all ranks, in place."""
        whole = [gradient for name, gradient in gradients.items() if self._shapes[name] is None]
        for gradient, total in zip(whole, _summed(whole), strict=True):
            gradient.copy_(total)
        views = {name: self._neutral(name, gradients[name]) for name in gradients if self._shapes[name] is not None}
        matrices = {name: view.reshape(self._shapes[name]) + self._residual(name) for name, view in views.items()}  # pyrefly: ignore[no-matching-overload]
        rights = {name: orthogonalise(self._factor(name)) for name in views}
        lefts = list(map(orthogonalise, _summed([matrix @ rights[name] for name, matrix in matrices.items()])))
        sums = _summed([matrix.T @ left for matrix, left in zip(matrices.values(), lefts, strict=True)])
        self._factors |= zip(matrices, sums, strict=True)
        for (name, matrix), left in zip(matrices.items(), lefts, strict=True):
            total = left @ self._factors[name].T
            self._residuals[name] = matrix - total / self._ranks
            views[name].copy_(total.view_as(views[name]))

    def _neutral(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.permute(self._weights[name].permutation)

    def _residual(self, name: str) -> torch.Tensor | float:
        return self._residuals.get(name, 0.0)

    def _drawn(self, name: str, columns: int) -> torch.Tensor:
        initial = initial_factor(name, (columns, self._run.techniques.compress_rank), self._run.seed)
        return torch.from_numpy(initial).to(self._weights[name].parameter)

    def _factor(self, name: str) -> torch.Tensor:
        """Returns the factor Q to start from; a column that became zero gets its initial value again."""
        kept = self._factors.get(name)
        return self._initial[name] if kept is None else torch.where(kept.any(0), kept, self._initial[name])

    def snapshot(self) -> Arrays:
        """Returns the residuals that this rank keeps; on the first rank, also the factors."""
        own = {f"{RESIDUAL}/{name}": self._as_array(name, residual) for name, residual in self._residuals.items()}
        factors = {f"{FACTOR}/{name}": factor.cpu().numpy().copy() for name, factor in self._factors.items()}
        return own | (factors if self._rank == 0 else {})

    def _as_array(self, name: str, residual: torch.Tensor) -> np.ndarray:
        neutral = self._neutral(name, self._weights[name].parameter)
        return residual.view(neutral.shape).cpu().numpy().copy()

    def restore(self, local: Sequence[Arrays]) -> None:
        """Restores the factors and the residuals of all ranks; resets them if none are given."""
        self._residuals, self._factors = {}, {}
        rank = self._run.techniques.compress_rank
        for name, shape in self._shapes.items() if local else ():
            parameter = self._weights[name].parameter
            own, factor = local[self._rank].get(f"{RESIDUAL}/{name}"), local[0].get(f"{FACTOR}/{name}")
            if shape is not None and own is not None:
                self._residuals[name] = torch.from_numpy(own.reshape(shape)).to(parameter)
            if shape is not None and factor is not None and factor.shape == (shape[1], rank):
                self._factors[name] = torch.from_numpy(factor).to(parameter)

    def kept_bytes(self) -> int:
        """Returns the bytes of the factors and residuals that this rank keeps."""
        return sum(kept.nbytes for kept in (*self._residuals.values(), *self._factors.values()))


def _summed(parts: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Returns the sums of some tensors over all ranks, with one all-reduce."""
    if not parts:
        return ()
    flat = torch.cat([part.reshape(-1) for part in parts])
    dist.all_reduce(flat)
    each = flat.split([part.numel() for part in parts])
    return [total.view_as(part) for total, part in zip(each, parts, strict=True)]


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """Returns a matrix with orthonormal columns; columns far shorter than the first become zero."""
    left = matrix.clone()
    least = LEAST_COLUMN * left[:, 0].norm()
    for number in range(left.shape[1]):
        norm = left[:, number].norm()
        left[:, number] = torch.where(norm > least, left[:, number] / norm, 0.0)
        left[:, number + 1 :] -= torch.outer(left[:, number], left[:, number] @ left[:, number + 1 :])
    return left
