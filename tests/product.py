"""The product's files as text, for tests that hold the house to its rules: read once, and parsed when a test asks."""

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from samestep.common.catalog import strategies_of
from samestep.common.frameworks import FRAMEWORKS
from samestep.common.strategy import StrategyInfo

ROOT = Path(__file__).parents[1]
FOLDERS = ("common", "torch_impl", "tf_impl", "experiments")
FILES = {str(path.relative_to(ROOT)): path.read_text() for name in FOLDERS for path in (ROOT / name).rglob("*.py")}


class Code(NamedTuple):
    """What tests ask of the code of a file, its docstrings and comments left out.

    Attributes:
        words: Its words.
        modules: Those that are dotted names of ours.
        axes: The AXIS of each `mesh.AXIS`, `mesh["AXIS"]`, `axis("AXIS")`, `axes=("AXIS", ...)` and line in `AXES`.
        classes: The names of its classes.
        anys: The lines that name `Any`.
    """

    words: frozenset[str]
    modules: tuple[str, ...]
    axes: frozenset[object]
    classes: tuple[str, ...]
    anys: tuple[int, ...]


@functools.cache
def code_of(file: str) -> Code:
    """The code of a file, which is parsed once for all: its tree is a hundred times as large as what is kept of it."""
    words, axes, classes, anys = set[str](), set[object](), list[str](), list[int]()
    for node in ast.walk(ast.parse(FILES[file])):
        axes.update(_axes_at(node))
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Attribute(value=ast.Name(id="re")):
                continue  # `re.compile` names no technique
            case ast.ClassDef():
                classes.append(node.name)
            case ast.Name(id="Any") | ast.Attribute(attr="Any"):
                anys.append(node.lineno)
        words.update(value for value in vars(node).values() if isinstance(value, str))
    modules = tuple(word for word in words if word.startswith("samestep."))
    return Code(frozenset(words), modules, frozenset(axes), tuple(classes), tuple(anys))


def files_with(word: str) -> set[str]:
    """The files of the product whose code has a word."""
    return {file for file in FILES if word in code_of(file).words}


def files_with_module(path: str) -> set[str]:
    """The files of the product that import a module, or from one, whose dotted name has some path in it."""
    pattern = re.compile(rf"\.{re.escape(path)}\b")
    return {file for file in FILES if any(map(pattern.search, code_of(file).modules))}


def files_that_declare(field: str) -> set[str]:
    """The files of the product with a dataclass that has a field."""
    return {name for name, text in FILES.items() if re.search(rf"^    {field}: ", text, re.MULTILINE)}


def of_other_units(unit: str, folder: str, units: Iterable[str]) -> set[str]:
    """The files that are other units, which one may be made of: Muon takes what is not a matrix as AdamW does.

    Args:
        unit: The name of the unit's files.
        folder: Of such units.
        units: The names of all of them.
    """
    others = {f"{other}.py" for other in units if other != unit}
    return {file for file in FILES if Path(file).parent.name == folder and Path(file).name in others}


def files_asking(axis: str) -> set[str]:
    """The files of the product that are an axis of the mesh, import it, or ask a mesh, a row or a table for it."""
    own = {file for file in FILES if Path(file).match(f"axes/{axis}.py")}
    asking = {file for file in FILES if axis in code_of(file).axes}
    return {file for file in own | asking | files_with_module(f"axes.{axis}") if "/defects/" not in file}


def files_of_axis(axis: str) -> set[str]:
    """The files that an axis takes: all that ask for it, of whose presets one for each framework.

    A preset is a strategy with its row in the catalogue and its family in `common/costs/`. It is the one, of those that have the
    axis first, of which most files ask for it; the others are further strategies that take it.

    Args:
        axis: The name of the axis.
    """
    asking, further, own = files_asking(axis), set[str](), set[str]()
    for framework in FRAMEWORKS:
        mirror = f"{framework}_impl"
        taking = [row for row in strategies_of(framework) if axis in row.axes]
        presets = {
            row.name: {f"{mirror}/catalog/{row.name}.py", *(asking & preset_files(mirror, row))} for row in taking
        }
        made_for_it = [presets[row.name] for row in taking if row.axes[0] == axis]
        own |= max(made_for_it or presets.values(), key=len, default=set())
        further |= set().union({f"{mirror}/catalog/presets.py"}, *presets.values())
    return asking - further | own


def preset_files(mirror: str, row: StrategyInfo) -> set[str]:
    """The files of a strategy beside its row in the catalogue: itself, and its family of costs.

    Args:
        mirror: The folder of its framework.
        row: Its row.
    """
    family = row.cost.__module__.removeprefix("samestep.").replace(".", "/")
    return {f"{mirror}/strategies/{row.name}.py", f"{family}.py"}


def _axes_at(node: ast.AST) -> list[object]:
    match node:
        case ast.Attribute(value=ast.Name(id="mesh") | ast.Attribute(attr="mesh"), attr=attr):
            return [attr]
        case ast.Subscript(value=ast.Name(id="mesh"), slice=ast.Constant(value=value)):
            return [value]
        case ast.Call(func=ast.Attribute(attr="axis"), args=[ast.Constant(value=value)]):
            return [value]
        case ast.keyword(arg="axes", value=ast.Tuple(elts=names)):
            return [each.value for each in names if isinstance(each, ast.Constant)]
        case ast.Dict(keys=names, values=[ast.Call(func=ast.Name(id="Axis")), *_]):
            return [each.value for each in names if isinstance(each, ast.Constant)]
        case _:
            return []


HOMONYMS = {
    "common/seconds/published_rows.py": "compile",  # a published row's name
    "common/workload/data/prose.py": "compile",  # Python's own
    "common/workload/declared.py": "compile",
    "tf_impl/tpu/compile_worker.py": "compile",
    "common/porting/training/configurations.py": "sgd",  # what Keras and torch call theirs
    "torch_impl/describing/configured.py": "adamw",
}
"""File -> the word that it has for something else."""


def files_of(unit: str, words: Iterable[str], folder: str) -> set[str]:
    """The files of the product that name a unit, import from it, or are it.

    Args:
        unit: The name of its files.
        words: What names it.
        folder: Of such units, as imports spell it.
    """
    own = {file for file in FILES if Path(file).stem == unit}
    named = set[str]().union(*(files_with(word) for word in words))
    found = own | named | files_with_module(f"{folder}.{unit}")
    return {file for file in found if "/defects/" not in file and HOMONYMS.get(file) != unit}
