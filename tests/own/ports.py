"""Models in both frameworks: right ports, and ports with one defect each, in a file for each kind."""

from tests.own.whole_ports import attention, images, perceptrons, recurrent, returned, training  # noqa: F401, they fill the tables
from tests.own.whole_ports.tables import DATA, OF, RIGHT, ROUNDED, WRONG, WRONG_UNLESS_ACCEPTED

__all__ = ["DATA", "MODELS", "OF", "RIGHT", "ROUNDED", "WRONG", "WRONG_UNLESS_ACCEPTED"]
MODELS = {**RIGHT, **ROUNDED, **WRONG_UNLESS_ACCEPTED, **{name: made for name, (made, *_) in WRONG.items()}}
globals().update({f"data_{name}": make for name, make in DATA.items()})
globals().update({f"M_{name.replace(' ', '_')}": made for name, made in MODELS.items()})
