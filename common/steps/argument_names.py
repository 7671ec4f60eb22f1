"""The names of the arguments that hold the examples of a call: keywords, positions, and places in lists and mappings."""

from collections.abc import Mapping, Sequence

MASKS = "attention_mask", "padding_mask"
"""The names that models give to the argument that hides padding."""
WHOLE = ":"
"""The suffix of an argument that does not have a row for each example, such as the edges of a graph: it has a hash per call."""
MOST_IN_WHOLE = 2**20
"""The largest number of elements in such an argument: hashing a larger mask would cost more than it tells."""


def names_of(kinds: type | tuple[type, ...], arguments: Sequence[object], keywords: Mapping[str, object]) -> list[str]:
    """Returns the names of the tensors of a call; those in mappings and keywords are sorted by name.

    Args:
        kinds: The classes of tensors.
        arguments: The positional arguments; if there is only one, and it is a mapping, its keys are the names.
        keywords: The keywords.
    """
    is_batch = len(arguments) == 1 and not isinstance(arguments[0], kinds)
    names = _names(kinds, "", arguments[0] if is_batch else arguments) if arguments else []
    return names + _names(kinds, "", keywords) if keywords else names


def called(name: str) -> str:
    """Returns the name of an argument for messages.

    Args:
        name: A keyword or a key, or a position.
    """
    return f"argument {name}" if name[:1].isdigit() else name


def padding_named(arguments: Sequence[object], keywords: Mapping[str, object]) -> tuple[list[object], object]:
    """Returns the padding masks that a call names, keywords first, and its position ids, which are None if it names none.

    Args:
        arguments: The positional arguments; a mapping among them names its parts.
        keywords: The keywords.
    """
    named = [keywords, *(each for each in arguments if isinstance(each, Mapping))]
    masks = [each[name] for each in named for name in MASKS if name in each]
    return masks, next((each["position_ids"] for each in named if "position_ids" in each), None)


def _names(kinds: type | tuple[type, ...], above: str, value: object) -> list[str]:
    if isinstance(value, (list, tuple)):
        parts = [*zip(map(str, range(len(value))), value, strict=True)]
    elif isinstance(value, Mapping):
        parts = [(str(name), value[name]) for name in sorted(value, key=str)]
    else:
        return []
    found = list[str]()
    for name, each in parts:
        path = f"{above}.{name}" if above else name
        if isinstance(each, kinds):
            found.append(path)
        else:
            found += _names(kinds, path, each)
    return found
