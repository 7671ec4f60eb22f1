"""The recorder of Keras on TensorFlow: it follows an unchanged script, and writes what each step did to every tensor."""

import sys
from collections.abc import Callable

from samestep.common.steps.recording import Recorder, RecordOptions


def install(options: str) -> Callable[[], None]:
    """Starts to record this process; Keras and TensorFlow have been imported. Returns what ends the record.

    Args:
        options: What `RecordOptions.to_json` wrote.
    """
    recorder = Recorder(RecordOptions.from_json(options), "tf")
    backend = sys.modules["keras"].backend.backend()
    if backend == "torch":
        return recorder.end  # the recorder of PyTorch follows it
    if backend != "tensorflow":
        recorder.end(f"Keras runs on {backend}, whose steps are not recorded; set KERAS_BACKEND=tensorflow or torch.")
        return recorder.end
    from samestep.tf_impl.recording.dtypes import use_float64
    from samestep.tf_impl.recording.hooks import Hooks
    from samestep.tf_impl.recording.session import Session

    session = Session(recorder)
    hooks = Hooks(session, recorder)
    hooks.install()
    if recorder.options.float64:
        use_float64()

    def last() -> None:
        hooks.tapes.manual.end_step()
        session.end()

    return recorder.end_with_process(last)
