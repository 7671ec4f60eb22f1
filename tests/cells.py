"""Test-sized workloads, and one way to run a cell on them."""

from common.config import FRAMEWORKS
from common.strategy import StrategyInfo, framework_info

SIZED = {
    "mlp": "digits-mlp+width=32",
    "cnn": "mnist-cnn+filters=4+hidden=16",
    "transformer": "prose-gpt+layers=2+width=32+context=16",
    "ranker": "flights-ranker+embedding=4+hash_buckets=512",
}


def every_row() -> list[tuple[str, StrategyInfo]]:
    """Every (framework, row) but the oracle."""
    return [(name, row) for name in FRAMEWORKS if name != "numpy" for row in framework_info(name).rows]
