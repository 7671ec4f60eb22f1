"""Families of layers, independent of what a framework calls them."""

from pathlib import Path

from samestep.common.features.used import FEATURES
from samestep.common.files.reading import read_toml

OTHER = "other"
WITH_PARAMETERS = ("linear", "convolution", "embedding", "recurrent", OTHER)
"""Families whose layers are matched by the parameters that they hold; all others, which may hold none, are matched by order
alone."""
SPATIAL = ("convolution", "pooling", "resizing")
"""Families whose arrays have their channels second in torch and last in Keras."""
_BY_KIND = {
    kind: family
    for families in (read_toml(Path(__file__).with_suffix(".toml")), *(feature.classes for feature in FEATURES))
    for family, kinds in families.items()
    for kind in kinds  # pyrefly: ignore[not-iterable]  # a list of ours
}


def family_of(kind: str) -> str:
    """Returns the family of a layer class or function; "other" for unknown ones, such as the user's own."""
    return _BY_KIND.get(kind, OTHER)
