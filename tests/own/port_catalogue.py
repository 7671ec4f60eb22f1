"""The catalogue of small ports: a piece of a model in both frameworks, right, or with one mistake; one file for each kind."""

from pathlib import Path

from tests.own.small_ports import attention, blocks, functions, images, places, sequences, training
from tests.own.small_ports.pieces import SmallPorts

KINDS = (attention, sequences, images, functions, training, blocks, places)
PORTS: tuple[SmallPorts, ...] = tuple(each.PORTS for each in KINDS)
RIGHT = {name: made for each in PORTS for name, made in each.are_right.items()}
WRONG = {name: made for each in PORTS for name, made in each.are_wrong.items()}
"""Name -> the model, and words of the cause; none where no cause is known."""
MODELS = {**RIGHT, **{name: made for name, (made, _) in WRONG.items()}}
OF = {name: data for each in PORTS for name, data in each.data.items()}
FILES = {name: Path(str(each.__file__)) for each in KINDS for name in each.PORTS.models}
"""Name -> the file that holds it."""
assert len(MODELS) == sum(len(each.models) for each in PORTS), "two have one name"
