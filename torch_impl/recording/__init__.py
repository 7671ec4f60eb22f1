"""The recorder of PyTorch: it follows a script that says nothing, and writes what each step did to every tensor."""

import atexit
import sys

from samestep.common.steps.recording import Recorder, RecordOptions
from samestep.torch_impl.recording.float64 import use_float64
from samestep.torch_impl.recording.hooks import Hooks
from samestep.torch_impl.recording.session import Session

_FOLLOWED: list[tuple[Session, Recorder, Hooks]] = []


def install(options: str) -> None:
    """Starts to record this process; torch has been imported.

    Args:
        options: What `RecordOptions.to_json` wrote.
    """
    recorder = Recorder(RecordOptions.from_json(options), "torch")
    session = Session(recorder)
    hooks = Hooks(session, recorder)
    hooks.install()
    _FOLLOWED.append((session, recorder, hooks))
    if recorder.options.float64:
        use_float64()
    atexit.register(recorder.guarded(session.end))


def install_keras() -> None:
    """Follows Keras on PyTorch as well; it has been imported."""
    from samestep.torch_impl.recording.keras_updates import follow_keras

    (followed,) = _FOLLOWED
    follow_keras(sys.modules["keras"], *followed)
