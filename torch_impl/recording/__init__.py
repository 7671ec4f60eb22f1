"""The recorder of PyTorch: it follows a script that says nothing, and writes what each step did to every tensor."""

import atexit

from samestep.common.steps.recording import Recorder, RecordOptions
from samestep.torch_impl.recording.float64 import use_float64
from samestep.torch_impl.recording.hooks import Hooks
from samestep.torch_impl.recording.session import Session


def install(options: str) -> None:
    """Starts to record this process; torch has been imported.

    Args:
        options: What `RecordOptions.to_json` wrote.
    """
    recorder = Recorder(RecordOptions.from_json(options), "torch")
    session = Session(recorder)
    Hooks(session, recorder).install()
    if recorder.options.float64:
        use_float64()
    atexit.register(recorder.guarded(session.end))
