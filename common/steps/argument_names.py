"""The names of the arguments of a call that hold examples: keywords, positions, and what they have in lists and mappings."""

from collections.abc import Mapping, Sequence


def names_of(kinds: type | tuple[type, ...], arguments: Sequence[object], keywords: Mapping[str, object]) -> list[str]:
    """Returns the names of the tensors of a call, those of mappings and keywords in the order of their names.

    Args:
        kinds: Of what tensors are.
        arguments: The arguments; a single one that is a batch gives its keys.
        keywords: The keywords.
    """
    is_batch = len(arguments) == 1 and not isinstance(arguments[0], kinds)
    names = _names(kinds, "", arguments[0] if is_batch else arguments) if arguments else []
    return names + _names(kinds, "", keywords) if keywords else names


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
