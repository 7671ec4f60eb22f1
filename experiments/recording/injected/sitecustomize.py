"""Python imports this module at its start in a recorded command.

It waits for the import of torch or Keras and then starts a recorder.

`samestep record` copies it into a separate folder, next to a file for notes. It imports nothing that takes time, and it must run
in any Python: samestep itself is imported with the framework. A module of the same name that this one shadows is run afterwards,
and the folder is removed from `sys.path`.
"""

import gc
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_BARE = "tensorflow"
"""The framework that is recorded once Keras is imported."""
_FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
_RECORDERS = {"torch": "samestep.torch_impl.recording", "keras": "samestep.tf_impl.recording"}
_KEEPING = os.path.join(_HERE, "keeping.py")
"""The module that is next to this file only in a rerun."""


class _Finder:
    """Finds a framework as the other finders would, and starts its recorder when the framework is imported."""

    def __init__(self) -> None:
        """Starts, in a rerun, to keep the files that the script would overwrite."""
        self._keeper = _keeper() if os.path.exists(_KEEPING) else None

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Finds a framework with another finder, and follows its loader."""
        if name not in (*_RECORDERS, _BARE, *(self._keeper.modules if self._keeper else ())):
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec is not None:
                if getattr(spec.loader, "exec_module", None) is not None:
                    _follow(name, spec.loader, self._keeper)
                return spec
        return None


def _follow(name: str, loader: object, keeper: object) -> None:
    execute = loader.exec_module

    def exec_module(module: object) -> None:
        loader.__dict__.pop("exec_module", None)
        _unsearched(execute, module)
        if keeper:
            keeper.follow(name)
        if name == _BARE:
            _wait_for(module.GradientTape, "__enter__")
            if _FUNCTIONS in sys.modules:  # another version of TensorFlow may have it elsewhere
                _wait_for(sys.modules[_FUNCTIONS].Function, "__call__")
        elif name in _RECORDERS:
            _start(name)

    loader.exec_module = exec_module


def _unsearched(execute: object, module: object) -> None:
    """Executes a framework's module without garbage collection: its objects stay, and scans would take a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        execute(module)
    finally:
        if was_enabled:
            gc.enable()


def _wait_for(kind: type, name: str) -> None:
    """Imports Keras at the first tape or call of a tf.function if the script has not: Keras' recorder follows TensorFlow."""
    method = getattr(kind, name)

    def first(self: object, *arguments: object, **keywords: object) -> object:
        if "keras" in sys.modules:
            return method(self, *arguments, **keywords)
        setattr(kind, name, method)
        try:
            import keras  # noqa: F401
        except ImportError as error:
            _note("note", f"plain TensorFlow is recorded with Keras, which cannot be imported: {error}")
        return getattr(kind, name)(self, *arguments, **keywords)

    setattr(kind, name, first)


def _start(name: str) -> None:
    """Imports the recorder of a framework. samestep is found by its path, since the command may have another Python."""
    import importlib.util
    import json

    options = os.environ["SAMESTEP_RECORD"]
    _note("framework", name)
    try:
        if "samestep" not in sys.modules:
            package = os.path.join(json.loads(options)["package"], "samestep")
            spec = importlib.util.spec_from_file_location(
                "samestep", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
            )
            sys.modules["samestep"] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        backend = sys.modules[name].backend.backend() if name == "keras" else ""
        if backend in _RECORDERS:
            importlib.import_module(_RECORDERS[backend]).install_keras()
        else:
            importlib.import_module(_RECORDERS[name]).install(options)
    except Exception as error:
        _note("note", f"the recorder could not start in {sys.executable}: {type(error).__name__}: {error}")


def _keeper() -> object:
    import importlib.util
    import json

    spec = importlib.util.spec_from_file_location("_samestep_keeping", _KEEPING)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = json.loads(os.environ["SAMESTEP_RECORD"])["keep"]
    reruns = os.path.dirname(os.path.dirname(written))
    keeper = module.Keeper(written, (_HERE, reruns), lambda text: _note("note", text))
    sys.addaudithook(keeper.listen)
    return keeper


def _note(kind: str, text: str) -> None:
    """Adds a line of JSON, without the module json, whose import would take longer than all of this."""
    plain = "".join(each if each.isprintable() and each not in '"\\' else " " for each in text)
    try:
        descriptor = os.open(os.path.join(_HERE, "notes"), os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, f'["{kind}", "{plain}"]\n'.encode())
        os.close(descriptor)
    except OSError:
        pass  # the command outlived `samestep record`


def _run_shadowed() -> None:
    """Runs the sitecustomize that Python would have found without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec(__name__, sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules[__name__] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != _HERE]
if "SAMESTEP_RECORD" in os.environ:
    _note("python", sys.executable)
    sys.meta_path.insert(0, _Finder())
_run_shadowed()
