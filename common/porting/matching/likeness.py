"""How alike the names of two layers are."""

import re

from samestep.common.workload.models.layer import ParameterLayer

_SYNONYMS = {"q": "query", "k": "key", "v": "value", "embedding": "table", "embed": "table"}


def likeness(one: ParameterLayer, other: ParameterLayer) -> float:
    """Returns the share of the words in two layers' names that are in both.

    Args:
        one: A layer.
        other: A layer of the other framework.
    """
    first, second = _words(one), _words(other)
    return len(first & second) / max(len(first | second), 1)


def _words(layer: ParameterLayer) -> set[str]:
    """Returns the words of a layer's path that somebody chose; names that Keras generates are left out."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", layer.kind).lower()
    automatic = rf"({snake}|dense|linear|conv\dd|layer_normalization|batch_normalization|embedding)(_\d+)?"
    parts = [part for part in re.split(r"[./]", layer.name) if not re.fullmatch(automatic, part)]
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|[_/.]", " ", " ".join(parts)).lower()
    text = re.sub(r"([a-z]+?)s?\s*(\d+)", r"\1\2", text)
    return {_SYNONYMS.get(word, word) for word in text.split() if not word.isdigit()}
