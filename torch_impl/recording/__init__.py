"""The recorder of PyTorch, which follows an unchanged script and writes what each step did to every tensor."""

from collections.abc import Callable

from samestep.common.steps.recording import Recorder, RecordOptions
from samestep.torch_impl.recording.dtypes import use_float64
from samestep.torch_impl.recording.hooks import Hooks
from samestep.torch_impl.recording.keras.layers import keras_on_torch
from samestep.torch_impl.recording.keras.updates import follow_keras
from samestep.torch_impl.recording.session import Session

_FOLLOWED: list[tuple[Session, Recorder, Hooks]] = []


def install(options: str) -> Callable[[], None]:
    """Starts to record this process, after torch was imported; returns the function that ends the record.

    Args:
        options: The options, as `RecordOptions.to_json` wrote them.
    """
    recorder = Recorder(RecordOptions.from_json(options), "torch")
    session = Session(recorder)
    hooks = Hooks(session, recorder)
    hooks.install()
    _FOLLOWED.append((session, recorder, hooks))
    install_keras()
    if recorder.options.float64:
        use_float64()
    return recorder.end_with_process(session.end)


def install_keras() -> None:
    """Follows Keras on PyTorch as well; call it once Keras has been imported."""
    keras = keras_on_torch()
    if keras is not None:
        follow_keras(keras, *_FOLLOWED[-1])
