"""Models as described by their papers, for predictions: they are not trained here."""

from pathlib import Path

from samestep.common.files.reading import read_toml
from samestep.common.workload.data.synthetic import SyntheticSpec
from samestep.common.workload.models.decoder import DecoderSpec
from samestep.common.workload.optimizers.table import DEFAULT
from samestep.common.workload.workload import Workload

_RATES = {DEFAULT: 2**-13}
"""A learning rate, which affects no prediction."""


def _published(name: str, table: dict) -> Workload:
    """Makes a workload from a table of `published.toml`: the sizes of the model, the global batch size and the source."""
    batch_size, source = table.pop("batch_size"), table.pop("source")
    return Workload(name, DecoderSpec(**table), SyntheticSpec(), "bits_per_token", _RATES, batch_size, 1, source)


PUBLISHED = {
    name: _published(name, table)  # pyrefly: ignore
    for name, table in read_toml(Path(__file__).with_suffix(".toml")).items()
}
