"""Keeps the recorder out of what a script saves: functions that were traced while recording are traced again without it."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensorflow.core.function.polymorphism.function_cache import FunctionCache
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from samestep.common.steps.recording import Recorder
from samestep.common.steps.wrapping import Wrap
from samestep.tf_impl.recording.rings import is_own


def follow_saving(recorder: Recorder) -> Wrap:
    """Returns the function that wraps the one that saves an object with its functions.

    Args:
        recorder: The recorder, which records nothing meanwhile.
    """

    def follow(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, export_dir: Any, signatures: Any = None, *arguments: Any, **keywords: Any) -> Any:
            if recorder.is_ended:
                return original(obj, export_dir, signatures, *arguments, **keywords)
            recorder.is_ended = True
            try:
                with _without_ours() as plain:
                    return original(obj, export_dir, _plain(signatures, plain), *arguments, **keywords)
            finally:
                recorder.is_ended = False

        return save

    return follow


@contextlib.contextmanager
def _without_ours() -> Iterator[Mapping[int, Any]]:
    """Replaces the traces of all functions with ones without the recorder; yields the new traces by the ids of the old ones."""
    functions = [each for each in gc.get_objects() if type(each) is Function]
    caches = {id(each._function_cache): each for each in functions if any(map(_has_ours, _traces(each)))}
    kept = [(each._function_cache, _state(each._function_cache), _traces(each)) for each in caches.values()]
    try:
        for cache, *_ in kept:
            _set_state(cache, _state(FunctionCache()))
        plain = dict[int, Any]()
        for function, (cache, state, traces) in zip(caches.values(), kept, strict=True):
            try:
                plain |= {id(trace): _traced_again(function, trace) for trace in traces}
            except Exception:  # it may be traced only once, and it need not be among what is saved
                _set_state(cache, state)
        yield plain
    finally:
        for cache, state, _ in kept:
            _set_state(cache, state)


def _traced_again(function: Any, trace: Any) -> Any:
    has_own = function.input_signature is not None
    arguments, keywords = ((), {}) if has_own else trace.structured_input_signature
    return function.get_concrete_function(*arguments, **keywords)


def _traces(function: Any) -> list[Any]:
    return [*function._function_cache.values()]


def _has_ours(trace: Any) -> bool:
    return any(map(is_own, trace.captured_inputs))


def _state(cache: FunctionCache) -> Mapping[str, object]:
    return {name: getattr(cache, name) for name in FunctionCache.__slots__ if hasattr(cache, name)}


def _set_state(cache: FunctionCache, state: Mapping[str, object]) -> None:
    for name, value in state.items():
        setattr(cache, name, value)


def _plain(signatures: Any, plain: Mapping[int, Any]) -> Any:
    """Returns signatures in which the traces with the recorder are replaced by the new ones."""
    if isinstance(signatures, Mapping):
        return {name: _plain(each, plain) for name, each in signatures.items()}
    return plain.get(id(signatures), signatures) if isinstance(signatures, ConcreteFunction) else signatures
