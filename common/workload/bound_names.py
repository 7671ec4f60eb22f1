"""Finds the names that a user's file binds from its text alone, so a wrong name is reported before a framework is imported."""

import ast
import symtable
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, unknown
from samestep.common.files.reading import Unreadable, read_bytes
from samestep.common.frameworks import conventions
from samestep.common.workload.declaration import BUILDERS

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BINDS = {"globals", "vars", "locals", "exec", "setattr", "__getattr__", "sys"}
"""Constructs by which a file may bind names that its text does not show."""

_WITHOUT_MODELS = sys.stdlib_module_names.union({"numpy"}, *(conventions(each).modules for each in BUILDERS))


def check_name(source: str, path: Path, name: str) -> None:
    """Refuses a name that a file does not bind, if its text shows which models it declares, or that it declares none.

    Everything else is left to the import of the file, which also shows the models that other functions declare.

    Args:
        source: The model as `--model` names it, for messages.
        path: The file.
        name: The name.

    Raises:
        ConfigError: The file does not bind the name.
    """
    try:
        text = read_bytes(str(path))
        tree, names = ast.parse(text), symtable.symtable(text, str(path), "exec").get_symbols()  # pyrefly: ignore[bad-argument-type]
    except (SyntaxError, ValueError, RecursionError, Unreadable):
        return  # the import says what is wrong, with the line
    if any(map(_may_bind_anything, ast.walk(tree))):
        return
    bound = {each.get_name() for each in names if each.is_assigned() or each.is_imported()}
    if name not in bound and ((models := list(_models(tree))) or not any(map(_may_bring_a_model, ast.walk(tree)))):
        raise no_such_model(source, path, name, models)


def no_such_model(source: str, path: Path, name: str, models: Sequence[str]) -> ConfigError:
    """Builds the error for a name under which a file declares no model.

    Args:
        source: The model as `--model` names it.
        path: The file.
        name: The name.
        models: The names under which it declares models.
    """
    if not models:
        return ConfigError(f"--model {source}: the file declares no model; add `model = samestep.Model(torch=...)`.")
    return unknown("model", name, models, f"Name one that the file declares, as in --model {path}:{models[0]}.")


def _may_bind_anything(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names)
    named = node.id if isinstance(node, ast.Name) else node.name if isinstance(node, _INNER[:2]) else ""
    return isinstance(node, ast.Global) or named in _BINDS


def _may_bring_a_model(node: ast.AST) -> bool:
    """Returns whether a node imports anything but modules that declare no models: Python's own, the frameworks and NumPy."""
    names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
    return any(each.partition(".")[0] not in _WITHOUT_MODELS for each in names)


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that run when the file is imported, without the bodies of functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _INNER):
            yield from _top(child)


def _models(tree: ast.Module) -> Iterator[str]:
    """Yields the names that are assigned a call of `samestep.Model`, under any names by which the file imports it."""
    modules, classes = set[str](), set[str]()
    for node in _top(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "samestep"}
        elif isinstance(node, ast.ImportFrom) and node.module == "samestep":
            classes |= {alias.asname or alias.name for alias in node.names if alias.name == "Model"}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            made = ast.unparse(node.value.func)
            if made in classes or made in {f"{module}.Model" for module in modules}:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (each.id for each in targets if isinstance(each, ast.Name))
