"""The frameworks and their packages, and the conventions of each that code below the catalogues needs."""

import dataclasses
import importlib
from collections.abc import Mapping

ORACLE_FRAMEWORK = "numpy"
FRAMEWORKS = {ORACLE_FRAMEWORK: "samestep.common.reference", "torch": "samestep.torch_impl", "tf": "samestep.tf_impl"}
"""Framework -> package. The only place that maps one to the other; `importlib` does the rest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conventions:
    """How a framework behaves where frameworks differ, mostly with a user's model.

    Attributes:
        name: Its name in messages.
        modules: The modules that only its workers may import.
        followed: The module whose import starts its recorder in a recorded script.
        steps: What its recorder counts as a step of a script.
        formats: The formats of a state that only it writes.
        holds_complex: How a complex number is held as real ones.
        not_trained: How a number is kept that is not trained.
        other_dtypes: What happens to numbers in another dtype, as a template with `counted` and `dtype`.
        casts_parameters: Whether parameters in another dtype are cast to that of the run.
        why_wide: Why a model may compute nothing in two bytes.
        agrees_on_gradients: Whether replicas ask each other which parameters got a gradient.
        norm_sums: How many sums over all replicas a batch normalization takes in each phase.
        has_equal_parts: Whether the parts of its all-to-all are equal, so each has room for the largest possible part.
        packed_bytes: The bytes to a multiple of which each row of its all-to-all is padded.
        sums_norms_at_once: Whether replicas sum the squares of the parameters that are distributed among them as one number.
        weights_suffix: The suffix of the files that its own writer of weights makes.
        read_suffixes: The suffixes of the files from which weights are read.
        faults: Text in an error that a user's forward pass or loss most likely caused -> what that code does, and what to do.
    """

    name: str
    modules: tuple[str, ...]
    followed: str
    steps: str
    formats: tuple[str, ...]
    holds_complex: str
    not_trained: str
    other_dtypes: str
    why_wide: str
    weights_suffix: str
    read_suffixes: tuple[str, ...]
    casts_parameters: bool = True
    agrees_on_gradients: bool = True
    norm_sums: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"forward": 2, "backward": 2})
    has_equal_parts: bool = False
    packed_bytes: int = 1
    sums_norms_at_once: bool = False
    faults: Mapping[str, str] = dataclasses.field(default_factory=dict)


def conventions(framework: str) -> Conventions:
    """Reads the conventions of a framework without importing it."""
    return importlib.import_module(FRAMEWORKS[framework] + ".rows.conventions").CONVENTIONS
