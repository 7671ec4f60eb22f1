"""English technical prose as bytes: the Python language reference that is part of every Python.

The text changes with the Python version, so its hash is part of every result: never compare runs across hashes.
"""

import dataclasses
from typing import ClassVar

from samestep.common.files.reading import read_bytes
from samestep.common.flags import flag
from samestep.common.workload.array_type import Array
from samestep.common.workload.data.dataset import PACKAGED_BYTES, ReadWhole, Split, cached, ignore_targets, package_file
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import DataSizes, ModelSpec

VOCABULARY = 256


@dataclasses.dataclass(frozen=True)
class ProseSpec(ReadWhole):
    """Sequences of `context` bytes; the targets are the bytes that come next."""

    name: ClassVar[str] = "prose"

    context: int = 64
    ignored: float = flag(0.0, "the same share as in the model", least=0, most=0.5)

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """Makes the sizes of the model follow the data."""
        return model.fitted(DataSizes((self.context,), VOCABULARY)), self

    def load(self) -> Split:
        """Reads `pydoc_data/topics.py`. Every fifth topic is held out, and repeated paragraphs are dropped."""
        lacking = "this Python lacks pydoc_data: install its documentation topics, or use another Python"
        split = cached(
            read_bytes(package_file("pydoc_data", "topics.py", lacking), PACKAGED_BYTES), _decode, self.context
        )
        return ignore_targets(split, self.ignored) if self.ignored else split


def _decode(source: bytes, context: int) -> Split:
    namespace: dict[str, dict[str, str]] = {}
    exec(compile(source, "pydoc_data/topics.py", "exec"), namespace)
    topics = namespace["topics"]
    seen: set[str] = set()
    texts: dict[bool, list[str]] = {False: [], True: []}
    for number, name in enumerate(sorted(topics)):
        for paragraph in topics[name].strip("\n").split("\n\n"):
            if paragraph not in seen:
                texts[number % 5 == 4].append(paragraph)
                seen.add(paragraph)
    train, test = ("\n\n".join(texts[part]).encode() for part in (False, True))
    return Split(*_sequences(train, context), *_sequences(test, context))


def _sequences(text: bytes, context: int) -> tuple[Array, Array]:
    import numpy as np

    tokens = np.frombuffer(text, np.uint8).astype(np.int64)
    count = (len(tokens) - 1) // context
    return tokens[: count * context].reshape(count, context), tokens[1 : count * context + 1].reshape(count, context)
