"""Benchmarks are started by hand and rarely: what they import from the product has to be there all the same."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """The modules of samestep, or of benchmarks, that a file imports from, and the names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and re.match(r"samestep\.|benchmarks\b", node.module or ""):
            yield from ((node.module or "", each.name) for each in node.names)


def defined(path: Path) -> set[str]:
    """The names that a module has once it is imported."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {each.asname or each.name for each in node.names}
    return found


def is_there(module: str, name: str) -> bool:
    place = ROOT.joinpath(*module.split("."))
    if place.with_suffix(".py").is_file():
        return name in defined(place.with_suffix(".py"))
    is_module = (place / f"{name}.py").is_file() or (place / name).is_dir()
    return is_module or ((place / "__init__.py").is_file() and name in defined(place / "__init__.py"))


def test_what_benchmarks_import_is_there() -> None:
    files = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "museum").rglob("*.py")]
    missing = {f"{path.name}: {each}" for path in files for each in imported(path) if not is_there(*each)}
    assert not missing and len(files) > 50
