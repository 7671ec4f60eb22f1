"""`--vary NAME=VALUE,VALUE`: names with the values to try."""

from collections.abc import Sequence

from samestep.common.errors import ConfigError
from samestep.common.flags import split_list

MAX_VALUES = 1000


def read_vary(texts: Sequence[str]) -> dict[str, str]:
    """Returns name -> its values, from several `NAME=VALUE,VALUE`.

    Raises:
        ConfigError: A text is not of that form, or a name is given twice.
    """
    axes: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--vary '{text}' is not NAME=VALUE,VALUE; write it as in --vary batch_size=64,128.")
        if name in axes:
            raise ConfigError(f"--vary gives '{name}' twice; list all its values at once.")
        axes[name] = values
    return axes


def split_values(name: str, text: str) -> tuple[str, ...]:
    """Returns the values of a name.

    Args:
        name: What varies.
        text: The values, with commas between them; with semicolons if a value has commas, as a mesh may.

    Raises:
        ConfigError: A value is empty or given twice, or there are too many.
    """
    example = "mesh=data=8;data=4,tensor=2" if name == "mesh" else f"{name}=2,4"
    values = tuple(split_list(text, f"--vary '{name}={text}'", "value", example, ";" if ";" in text else ","))
    if len(values) > MAX_VALUES:
        raise ConfigError(f"--vary {name} lists {len(values)} values; list at most {MAX_VALUES}.")
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"--vary {name} lists {value} twice; list each value once.")
    return values
