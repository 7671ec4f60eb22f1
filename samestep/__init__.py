"""One training step, under every distribution strategy of PyTorch and TensorFlow, proven to be the same step.

`samestep.run("torch:ddp", devices=2)` trains, judges and returns the result; `samestep.compare` does so for many
strategies; `samestep.predict` says what a step would hold and send; `samestep.record` records your own training, and
`samestep.diff` says whether two records are of the same steps; `samestep.load` reads what a run left, and `samestep.report`
writes a page about it; `samestep.advise` and `samestep.port` answer questions about a model. Importing this package
imports nothing but the standard library.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samestep.api import compare, diff, load, predict, record, resume, run
    from samestep.common.errors import (
        ConfigError,
        Diverged,
        ParityFailed,
        SamestepError,
        Unavailable,
        WorkerFailed,
    )
    from samestep.common.judging.recorded.verdict import RecordedVerdict
    from samestep.common.runtime.records import RunResult
    from samestep.common.workload.declaration import Model
    from samestep.experiments.advising.advice import Advice
    from samestep.experiments.advising.forecast import Forecast
    from samestep.experiments.advising.prediction import Prediction
    from samestep.experiments.comparing.comparison import Comparison
    from samestep.experiments.comparing.row import Row
    from samestep.models import PortResult, advise, port
    from samestep.reports import report

_HOMES = {
    "samestep.common.errors": (
        "ConfigError",
        "Diverged",
        "ParityFailed",
        "SamestepError",
        "Unavailable",
        "WorkerFailed",
    ),
    "samestep.common.judging.recorded.verdict": ("RecordedVerdict",),
    "samestep.common.runtime.records": ("RunResult",),
    "samestep.common.workload.declaration": ("Model",),
    "samestep.api": ("compare", "diff", "load", "predict", "record", "resume", "run"),
    "samestep.models": ("PortResult", "advise", "port"),
    "samestep.reports": ("report",),
    "samestep.experiments.advising.advice": ("Advice",),
    "samestep.experiments.comparing.comparison": ("Comparison",),
    "samestep.experiments.advising.forecast": ("Forecast",),
    "samestep.experiments.advising.prediction": ("Prediction",),
    "samestep.experiments.comparing.row": ("Row",),
}
"""Module -> the names that this package offers from it, which are imported when they are first used."""
_FUNCTIONS = ("samestep.api", "samestep.models")
"""Modules whose functions return results that prompts and notebooks display in a form that `samestep.notebook` registers."""

__all__ = [  # noqa: RUF022 (type checkers want the names written out)
    "run", "resume", "compare", "predict", "record", "diff", "load", "advise", "port", "report", "Model", "RunResult",
    "Comparison", "Row", "Forecast", "Prediction", "Advice", "PortResult", "RecordedVerdict",
    "SamestepError", "ConfigError", "Unavailable", "ParityFailed", "WorkerFailed", "Diverged",
]  # fmt: skip


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            if module in _FUNCTIONS:
                importlib.import_module("samestep.notebook").register()
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'samestep' has no attribute '{name}'; it offers {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
