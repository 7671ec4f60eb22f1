"""The TPUs that a step can be compiled for, by name: `v5e:2x2` is four v5e chips in a square. Imports no framework."""

import dataclasses
import importlib.util
import math
import re

from samestep.common.errors import ConfigError, Unavailable, unknown

COMPILER_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",  # asks Google Cloud's metadata server which TPU this is
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a lock in /tmp keeps two programs off one TPU; here is none
}
"""What the environment of the compiler's process must hold before it loads libtpu."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """One generation of TPUs, as its compiler sees it.

    Attributes:
        dims: The number of dimensions in which its chips are wired.
        cores_per_chip: The number of cores of a chip; each computes and has its own share of the chip's memory.
        hbm_gib: The memory that the compiler grants a program on one core; what a chip is sold with is more.
    """

    dims: int
    cores_per_chip: int
    hbm_gib: float


# libtpu 0.0.42; `test_memory_is_what_the_compiler_grants` asks it again.
GENERATIONS = {
    "v3": Generation(2, 2, 15.48),
    "v4": Generation(3, 2, 15.25),
    "v5e": Generation(2, 1, 15.75),
    "v5p": Generation(3, 1, 95.74),
    "v6e": Generation(2, 1, 31.25),
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """Chips of one generation in a grid.

    Attributes:
        name: The name as the user and the compiler spell it.
        generation: The generation of its chips.
        chips: The number of chips along each dimension.
    """

    name: str
    generation: Generation
    chips: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Topology":
        """Reads `v5e:2x2` or `v4:2x2x1`.

        Raises:
            ConfigError: There is no such generation, or no such grid of it.
        """
        generation, _, grid = text.partition(":")
        if generation not in GENERATIONS:
            raise unknown("TPU generation", generation, GENERATIONS, "Write generation:grid, as in v5e:2x2.")
        dims = GENERATIONS[generation].dims
        wrong = f"--tpu-topology is '{text}'"
        example = f"{generation}:{'x'.join(['2', '2', '1'][:dims])}"
        if not re.fullmatch(r"[1-9][0-9]{0,2}(x[1-9][0-9]{0,2})+", grid) or grid.count("x") + 1 not in (2, dims):
            raise ConfigError(f"{wrong}; give the chips of {generation} along its {dims} dimensions, as in {example}.")
        chips = tuple(int(size) for size in grid.split("x"))
        if any(size > 1 and size % 2 for size in chips[:2]):
            raise ConfigError(f"{wrong}; the first two sizes are each 1 or even, as in {example}.")
        return cls(text, GENERATIONS[generation], chips)

    @property
    def cores(self) -> int:
        """The number of its cores."""
        return math.prod(self.chips) * self.generation.cores_per_chip

    @property
    def chips_per_host(self) -> list[int]:
        """The chips of one host: a square of four, or as much of it as there is; the compiler wants three dimensions."""
        return [*(min(size, 2) for size in self.chips[:2]), 1]

    @property
    def hbm_bytes(self) -> int:
        """The memory of a core."""
        return round(self.generation.hbm_gib * 2**30)


def require_compiler() -> None:
    """Makes sure that the TPU's compiler is installed, without importing it.

    Raises:
        Unavailable: It is not installed; the message has the install line.
    """
    missing = [module for module in ("jax", "libtpu") if importlib.util.find_spec(module) is None]
    if missing:
        raise Unavailable(
            f"--tpu-topology needs Google's TPU compiler, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install 'samestep[tpu]'"
        )
