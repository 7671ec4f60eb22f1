"""What PyTorch sees of GPUs, and what their allocator held: `python -m samestep.torch_impl.observing.gpus` prints the first."""

import json
from typing import Self

import torch


def gpus() -> list[tuple[str, int]]:
    """Returns the name and the memory in bytes of each GPU, in the order of their numbers."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [torch.cuda.get_device_properties(number) for number in range(count)]
    return [(each.name, each.total_memory) for each in found]


class AllocatorPeak:
    """The most bytes of tensors that a GPU's allocator held at once within a `with`.

    The scratch space of its matrix products is not counted: each thread that computes some has its own, for all its products,
    whatever their sizes (32 MiB on an H200).

    Attributes:
        bytes: None before its end, and on CPU cores, whose allocator does not count.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.bytes: int | None = None

    def __enter__(self) -> Self:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        return self

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cuda":
            peak, held = torch.cuda.max_memory_allocated(self._device), torch.cuda.memory_allocated(self._device)
            torch._C._cuda_clearCublasWorkspaces()
            self.bytes = peak - (held - torch.cuda.memory_allocated(self._device))


if __name__ == "__main__":
    print(json.dumps(gpus()))
