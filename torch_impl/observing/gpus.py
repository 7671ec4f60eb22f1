"""The GPUs that PyTorch sees, and their allocator's peak; `python -m samestep.torch_impl.observing.gpus` prints the GPUs."""

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

    The workspace for matrix products is not counted. Each thread that computes products has its own, whose size does not depend
    on the products (32 MiB on an H200).

    Attributes:
        bytes: The peak; None before the `with` ends, and on CPU cores, whose allocator does not count.
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
