"""The house rules that can be counted: sizes, types, docstrings, what no file may do, CONTRIBUTING's table of what to touch."""

import ast
import functools
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.code_size import product
from samestep.common.catalog import catalogue, framework_info, strategy_info
from samestep.common.flags import flags
from samestep.common.request import FRAMEWORKS
from samestep.common.techniques import Techniques
from samestep.common.workload.optimizers.table import OPTIMIZERS

ROOT = Path(__file__).parents[1]
FOLDERS = ("common", "torch_impl", "tf_impl", "experiments")
FILES = {str(path.relative_to(ROOT)): path.read_text() for name in FOLDERS for path in (ROOT / name).rglob("*.py")}
SIZES = product(ROOT)


def test_functions_and_files_are_small() -> None:
    bodies = {f"{size.path}:{name}": lines for size in SIZES for name, lines in size.functions}
    assert statistics.median(bodies.values()) <= 6
    assert {name: lines for name, lines in bodies.items() if lines > 40} == {}
    assert {str(size.path): size.lines for size in SIZES if size.lines > 250} == {}
    strategies = {str(size.path): size.lines for size in SIZES if size.path.parent.name == "strategies"}
    assert {name: lines for name, lines in strategies.items() if lines > 120} == {}


def test_almost_everything_is_annotated() -> None:
    assert sum(size.annotated for size in SIZES) >= 0.99 * sum(size.annotatable for size in SIZES)


def test_neutral_code_hardly_names_any() -> None:
    named = [
        f"{name}:{node.lineno}"
        for name, text in FILES.items()
        for node in ast.walk(ast.parse(text))
        if name.startswith("common/")
        and (
            (isinstance(node, ast.Name) and node.id == "Any")
            or (isinstance(node, ast.Attribute) and node.attr == "Any")
        )
    ]
    assert len(named) <= 8, named


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (
            r"Mesh\.parse\(",
            {"common/run.py", "experiments/advise.py", "experiments/comparing/scaling.py"},
        ),  # once, by whoever reads text
        (r"batch_size or 0|\.steps or 0", set()),
        (r"\.options(\[|\.get\()", set()),  # typed
        (r"\.optimizer\(config|\.optimizer\(run", set()),
        (r"workload: Workload, config: RunConfig", set()),
        (
            r"dict\[str, Any\]",
            {
                "torch_impl/strategies/deepspeed.py",
                "torch_impl/observing/exchanges.py",
                "torch_impl/deepspeed/engine.py",
                "torch_impl/replicas.py",
            },
        ),
        (r"endswith\(\"/?(kernel|bias|table|scale)|\"norm/\"|\"attention/key\"", set()),  # roles are data
        (r"\blaws?\b|micro_batches: int|\bCut\b", set()),  # the words of docs/glossary.md
        (r"isinstance\([^)]*TransformerSpec", set()),
        (r"\"cuda\" in", set()),
        (r"/dev/nvidia|\"nvidia", set()),
        (r"_object\(|_object_list\(|import pickle|allow_pickle=True", set()),  # unpickling runs code
        (
            r"\.write_(text|bytes)\(|\.open\(\"[wax]|savez\w*\([^)]*/|copytree|O_CREAT|export_chrome_trace",
            {
                "common/files/writing.py",  # which follows no link
                "common/files/written.py",
                "common/runtime/parent/processes/scratch.py",  # into a folder of this moment, for its user alone
                "common/runtime/parent/models/weight_transfer.py",
                "common/runtime/parent/judging/launched_rerun.py",
                "common/runtime/worker/private_network.py",  # below /proc
                "torch_impl/profiling.py",  # likewise, and copied from there
                "experiments/report.py",  # what the user names with -o
                "experiments/printing/picture.py",
                "experiments/documenting/docs_pictures.py",
                "experiments/documenting/page_pictures.py",
                "experiments/documenting/readme.py",
                "experiments/documenting/settings.py",
                "experiments/exporting/to_tensorboard.py",
            },
        ),
        (
            r"rmtree|os\.remove\(",
            {"common/runtime/parent/processes/scratch.py", "common/runtime/parent/models/weight_transfer.py"},
        ),
    ],
)
def test_what_is_gone_stays_gone(pattern: str, allowed: set[str]) -> None:
    found = {name for name, text in FILES.items() if re.search(pattern, text)}
    assert found <= allowed


def test_a_twin_is_its_twins_twin() -> None:
    twins = {f"{framework}:{row.name}": row.twin for framework, row in catalogue() if row.twin}
    assert {twin: name for name, twin in twins.items()} == twins
    assert twins["torch:tp"] == "tf:dtensor"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_folder_and_catalogue_agree(framework: str) -> None:
    """One file and one cost model a strategy, named alike; strategies that hold the full model everywhere may share one."""
    folder = ROOT / Path(*FRAMEWORKS[framework].split(".")[1:]) / "strategies"
    rows = {row.name: row for row in framework_info(framework).rows}
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(rows)
    for row in rows.values():
        assert row.cost.__name__ in (row.name, "replicated"), row.name


# --- docstrings -------------------------------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef
REFERS = re.compile(r"[Ss]ee `[\w.]+`|the arguments are those of `\w+`")


def public_functions(text: str) -> Iterator[tuple[str, Function, bool]]:
    """Functions and methods that others may call, each with whether it is of a protocol."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            is_protocol = any("Protocol" in ast.unparse(base) for base in node.bases)
            yield from ((f"{node.name}.{f.name}", f, is_protocol) for f in node.body if isinstance(f, Function))
        elif isinstance(node, Function):
            yield node.name, node, False


def parameters(function: Function) -> tuple[str, ...]:
    given = function.args
    return tuple(a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs) if a.arg not in ("self", "cls"))


def undescribed(function: Function) -> list[str]:
    """The parameters that the section `Args` of a function's docstring does not describe."""
    section = (ast.get_docstring(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    return [name for name in parameters(function) if f"    {name}: " not in section]


def lacks_arguments(files: Mapping[str, str]) -> list[str]:
    """Public functions of two or more parameters whose docstring neither describes them nor says where to look.

    A method may leave it to a protocol that has the same method.
    """
    found = [(f"{file}:{name}", *rest) for file, text in files.items() for name, *rest in public_functions(text)]
    promised = {(f.name, parameters(f)) for _, f, is_protocol in found if is_protocol}
    return [
        name
        for name, function, is_protocol in found
        if not function.name.startswith("_") and len(parameters(function)) > 1 and undescribed(function)
        if is_protocol or "." not in name.partition(":")[2] or (function.name, parameters(function)) not in promised
        if not REFERS.search(ast.get_docstring(function) or "")
    ]


def test_two_or_more_parameters_are_described() -> None:
    assert lacks_arguments(FILES) == []


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ('def f(a, b):\n    """Adds."""', ["f"]),
        ('def f(a, b):\n    """Adds.\n\n    Args:\n        a: One.\n    """', ["f"]),
        ('def f(a, b):\n    """Adds.\n\n    Args:\n        a: One.\n        b: Two.\n    """', []),
        ('def f(a, b):\n    """See `g`."""', []),
        ('def f(a):\n    """Keeps."""', []),
        ('def _f(a, b):\n    """Adds."""', []),
        ('class C:\n    def f(self, a, b):\n        """Adds."""', ["C.f"]),
        ('class P(Protocol):\n    def f(self, a, b):\n        """Adds."""', ["P.f"]),
        (
            'class P(Protocol):\n    def f(self, a, b):\n        """Adds.\n\n        Args:\n'
            '            a: One.\n            b: Two.\n        """\nclass C:\n    def f(self, a, b):\n        """Adds."""',
            [],
        ),
    ],
)
def test_a_parameter_that_is_not_described_is_found(text: str, lacking: list[str]) -> None:
    assert lacks_arguments({"file.py": text}) == [f"file.py:{name}" for name in lacking]


# --- what to touch ----------------------------------------------------------------------------------------------------

TABLE = re.findall(
    r"^\| (an? [^|]+?) \| (\d+) \| ([^|]+?) \| `(\w+)` \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
)


@functools.cache
def words_of(file: str) -> frozenset[str]:
    """The words in the code of a file, not in its docstrings and comments."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(FILES[file])):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_pattern = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"
        if not is_text and not is_pattern:  # `re.compile` names no technique
            found |= {value for value in vars(node).values() if isinstance(value, str)}
    return frozenset(found)


def files_with(word: str) -> set[str]:
    """The files of the product whose code has a word."""
    return {file for file in FILES if word in words_of(file)}


def files_with_module(path: str) -> set[str]:
    """The files of the product that import a module, or from one, whose dotted name has some path in it."""
    pattern = re.compile(rf"\.{re.escape(path)}\b")
    imported = {file: [word for word in words_of(file) if word.startswith("samestep.")] for file in FILES}
    return {file for file, words in imported.items() if any(map(pattern.search, words))}


def files_that_declare(field: str) -> set[str]:
    """The files of the product with a dataclass that has a field."""
    return {name for name, text in FILES.items() if re.search(rf"^    {field}: ", text, re.MULTILINE)}


def test_the_table_is_there() -> None:
    assert [kind for kind, *_ in TABLE] == [
        "an option of a strategy",
        "a technique",
        "a feature of a model",
        "an optimizer",
        "a field of the request",
        "a quantity",
        "a strategy",
        "a model",
        "a user model",
    ]


HOMONYMS = {
    "common/seconds/published_rows.py": "compile",  # a published row's name
    "common/workload/data/prose.py": "compile",  # Python's own
    "common/workload/declared.py": "compile",
    "tf_impl/tpu/compile_worker.py": "compile",
    "common/porting/configurations.py": "sgd",  # what Keras and torch call theirs
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


UNITS = {
    "a technique": {
        each.__module__.split(".")[-2]: files_of(each.__module__.split(".")[-2], flags(each), "techniques")
        for each in Techniques.__bases__
    },
    "an optimizer": {name: files_of(name, [name, kind.__name__], "optimizers") for name, kind in OPTIMIZERS.items()},
    "a feature of a model": {
        name: files_of(name, words, "models")
        for name, words in {
            "dropout": ["dropout"],
            "batch_norm": ["batch_norm", "batch_norms", "has_batch_norm"],
            "tied": ["tied"],
            "ignored": ["ignored", "ignores_targets"],
        }.items()
    },
}
"""Kind -> each unit that there is -> the files in which it occurs."""


@pytest.mark.parametrize("kind", UNITS)
def test_the_figure_is_that_of_the_largest_unit(kind: str) -> None:
    """Every unit is counted, and the table has the largest as its figure and its example."""
    ((most, example),) = ((int(most), example) for row, most, _, example in TABLE if row == kind)
    sizes = {unit: len(files) for unit, files in UNITS[kind].items()}
    assert max(sizes.values()) == sizes[example] == most, sizes


@pytest.mark.parametrize(("kind", "most", "places", "example"), TABLE, ids=[row[0] for row in TABLE])
def test_what_to_touch_is_what_an_example_touches(kind: str, most: str, places: str, example: str) -> None:
    """An example that stands in the tree occurs in the files that the table names, and in no other."""
    named = re.findall(r"`([^`]+)`", places)
    patterns = [
        re.compile("(^|/)" + re.escape(each).replace("NAME", r"\w+") + ("" if each[-1] == "/" else "$"))
        for each in named
    ]
    if kind in UNITS:
        found = UNITS[kind][example]
    else:
        found = files_that_declare(example) if "reads it" in places else files_with(example)
    assert len(found) <= int(most), sorted(found)
    strangers = {name for name in found if not any(pattern.search(name) for pattern in patterns)}
    assert not strangers, f"CONTRIBUTING's row '{kind}' does not name {sorted(strangers)}"


def test_the_rows_that_run_elsewhere_are_described_alike_everywhere() -> None:
    """What the catalogue says of a strategy does not depend on the machine it is read on."""
    assert strategy_info("torch", "dp").emulation
    assert strategy_info("tf", "tpu").emulation
