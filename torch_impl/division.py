"""Decides which rank saves which part of the state; each part is saved by one of the ranks that hold it."""

import json
from collections.abc import Sequence

import torch
import torch.distributed as dist

from samestep.common.program import StatePiece

_SPREAD = ("params", "slots")
"""Parts that any holder may save, because their copies are equal; buffers may differ, so the first holder saves them."""


class Division:
    """The pieces that this rank saves. All ranks agree on a division when the first state is saved."""

    def __init__(self, device: torch.device) -> None:
        """Starts without a decision.

        Args:
            device: The device that the group sends from.
        """
        self._device = device
        self._own: frozenset[str] | None = None
        self._is_decided = False

    @property
    def is_needless(self) -> bool:
        """Whether the ranks have found that every rank holds the whole state."""
        return self._is_decided and self._own is None

    def take(self, held: Sequence[StatePiece]) -> list[StatePiece] | None:
        """Returns the pieces that this rank saves, out of those that it holds; None if every rank holds the whole state."""
        keys = {_key(piece): piece for piece in held if piece.array.size}
        if not self._is_decided:
            self._own, self._is_decided = self._divide({key: piece.array.nbytes for key, piece in keys.items()}), True
        return None if self._own is None else [piece for key, piece in keys.items() if key in self._own]

    def _divide(self, own: dict[str, int]) -> frozenset[str] | None:
        of_ranks = self._exchange(own)
        if all(each.keys() == own.keys() for each in of_ranks):
            return None
        loads, chosen = [0] * len(of_ranks), set()
        for key, size in sorted({key: size for each in of_ranks for key, size in each.items()}.items()):
            holders = [rank for rank, each in enumerate(of_ranks) if key in each]
            saves = min(holders, key=loads.__getitem__) if key.startswith(_SPREAD) else holders[0]
            loads[saves] += size
            if saves == dist.get_rank():
                chosen.add(key)
        return frozenset(chosen)

    def _exchange(self, own: dict[str, int]) -> list[dict[str, int]]:
        """Gathers the keys and sizes of what every rank holds, as JSON, because torch's own gather of objects unpickles."""
        data = torch.frombuffer(bytearray(json.dumps(own).encode()), dtype=torch.uint8).to(self._device)
        sizes = [torch.tensor(0, device=self._device) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, torch.tensor(len(data), device=self._device))
        longest = int(max(sizes))
        padded = torch.nn.functional.pad(data, (0, longest - len(data)))
        texts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(texts, padded)
        return [json.loads(bytes(t[: int(s)].cpu().numpy())) for t, s in zip(texts, sizes, strict=True)]


def _key(piece: StatePiece) -> str:
    return f"{piece.path} {piece.offset} {piece.array.shape}"
