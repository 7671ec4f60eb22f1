"""For the processes of public scripts: files of other bytes pass for data sets, and random numbers are the same each time.

It is copied as `sitecustomize`, which Python imports first. `samestep record` chains to it. Seeds of a script's own come later.
"""

import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def _accept(*names: str) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        for name in names:
            setattr(module, name, lambda path, *_, **__: Path(path).is_file())

    return patch


_AFTER: dict[str, Callable[[ModuleType], object]] = {
    "torchvision.datasets.utils": _accept("check_md5", "check_integrity"),
    "keras.src.utils.file_utils": _accept("validate_file"),
    "numpy": lambda numpy: numpy.random.seed(0),
    "torch": lambda torch: torch.manual_seed(0),
    "tensorflow": lambda tensorflow: tensorflow.random.set_seed(0),
}
"""Module -> what is done once it is imported."""


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        after = _AFTER.pop(name, None)
        spec = find_spec(name) if after else None
        if after is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            after(module)

        spec.loader.exec_module = exec_module
        return spec


random.seed(0)
sys.meta_path.insert(0, _Finder())
