"""The dtypes of a user's model. Real numbers of another width are cast with a note, and all other numbers are refused."""

from collections.abc import Iterable, Mapping

from samestep.common.errors import ConfigError
from samestep.common.frameworks import conventions

_MOST_NAMED = 3
Dtypes = Mapping[str, str]
"""The framework's name of a parameter or buffer -> its dtype, such as "float32"."""


def check_numbers(source: str, framework: str, params: Dtypes, buffers: Dtypes) -> None:
    """Refuses parameters and buffers that no strategy can train or keep as they are.

    Args:
        source: Where the model is declared, for messages.
        framework: The framework of the model.
        params: The dtypes of the parameters.
        buffers: The dtypes of the buffers.

    Raises:
        ConfigError: A parameter or buffer is complex, or a parameter holds whole numbers.
    """
    for what, dtypes in (("parameter", params), ("buffer", buffers)):
        for name, dtype in dtypes.items():
            if dtype.startswith("complex"):
                raise ConfigError(
                    f"--model {source}: the {what} {name} is {dtype}, and rows train and keep real numbers; hold its real and "
                    f"its imaginary part: {conventions(framework).holds_complex}."
                )
    for name, dtype in params.items():
        if not is_real(dtype):
            instead = conventions(framework).not_trained
            raise ConfigError(f"--model {source}: the parameter {name} is {dtype}, which has no gradient; {instead}.")


def is_real(dtype: str) -> bool:
    """Returns whether numbers of a dtype are real, such as float64 or bfloat16."""
    return "float" in dtype


def check_outputs(what: str, dtype: str) -> None:
    """Refuses outputs, or a loss, whose dtype cannot be used for training.

    Args:
        what: A description of what returns them.
        dtype: The dtype of the outputs or the loss.

    Raises:
        ConfigError: They are not real.
    """
    if dtype.startswith("complex"):
        raise ConfigError(f"{what} returns {dtype}; return real numbers, such as the absolute values.")
    if not is_real(dtype):
        raise ConfigError(f"{what} returns {dtype}, which has no gradient; return real numbers.")


def note_on_dtypes(framework: str, dtypes: Dtypes, dtype: str) -> str:
    """Returns a clause on the parameters and buffers whose dtype in a run differs from that in their file.

    Args:
        framework: The framework of the model.
        dtypes: The dtypes that differ from the framework's default.
        dtype: The dtype of the run.

    Returns:
        The clause; "" if there are none.
    """
    others = {name: kind for name, kind in dtypes.items() if kind != dtype}
    if not others:
        return ""
    counted = ", ".join(
        _count(kind, [n for n, k in others.items() if k == kind]) for kind in dict.fromkeys(others.values())
    )
    return conventions(framework).other_dtypes.format(counted=counted, dtype=dtype)


def _count(dtype: str, names: Iterable[str]) -> str:
    every = list(names)
    named = ", ".join(every[:_MOST_NAMED]) + (", ..." if len(every) > _MOST_NAMED else "")
    what = "parameter or buffer is" if len(every) == 1 else "parameters and buffers are"
    return f"{len(every)} {what} {dtype} ({named})"
