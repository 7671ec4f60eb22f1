"""The house rules that can be counted: sizes, types, docstrings, what no file may do, CONTRIBUTING's table of what to touch."""

import ast
import collections
import functools
import re
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.code_size import Size, product
from samestep.common.catalog import catalogue, strategies_of, strategy_info
from samestep.common.flags import flags
from samestep.common.mesh import AXES
from samestep.common.request import FRAMEWORKS
from samestep.common.techniques import Techniques
from samestep.common.workload.optimizers.table import OPTIMIZERS
from tests.product import FILES, ROOT, code_of, files_of, files_of_axis, files_that_declare, files_with, of_other_units


@functools.cache
def sizes() -> list[Size]:
    return product(ROOT)


def test_functions_and_files_are_small() -> None:
    bodies = {f"{size.path}:{name}": lines for size in sizes() for name, lines in size.functions}
    assert statistics.median(bodies.values()) <= 6
    assert {name: lines for name, lines in bodies.items() if lines > 40} == {}
    assert {str(size.path): size.lines for size in sizes() if size.lines > 250} == {}
    strategies = {str(size.path): size.lines for size in sizes() if size.path.parent.name == "strategies"}
    assert {name: lines for name, lines in strategies.items() if lines > 120} == {}


def test_no_folder_has_many_modules() -> None:
    folders = collections.Counter(str(size.path.parent) for size in sizes() if size.path.name != "__init__.py")
    assert {name: count for name, count in folders.items() if count > 20} == {}


def test_a_class_name_has_one_meaning_but_in_the_mirrors() -> None:
    mirrors = r"(torch_impl|tf_impl|common/reference|common/techniques|common/workload/(features|optimizers))/.*"
    places: dict[str, set[str]] = {}
    for file in FILES:
        for name in code_of(file).classes:
            places.setdefault(name, set()).add(re.sub(mirrors, "a mirror", file))
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == {}


def test_almost_everything_is_annotated() -> None:
    assert sum(size.annotated for size in sizes()) >= 0.99 * sum(size.annotatable for size in sizes())


def test_neutral_code_hardly_names_any() -> None:
    named = [f"{file}:{line}" for file in FILES if file.startswith("common/") for line in code_of(file).anys]
    assert len(named) <= 8, named


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (
            r"Mesh\.parse\(",
            {
                "common/run.py",
                "experiments/advising/assumptions.py",
                "experiments/advising/forecast.py",
                "experiments/comparing/plan.py",
                "experiments/comparing/scaling.py",
            },
        ),  # once, by whoever reads text
        (r"batch_size or 0|\.steps or 0", set()),
        (r"\.options(\[|\.get\()|(getattr|vars)\((\w+\.)*options\b", set()),  # typed: `StrategyOptions`
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
        (
            r"(isinstance|cast)\([^)]*\w+Spec\b|model\.name [!=]=|vars\((\w+\.)*(model|spec)\)",
            set(),
        ),  # a model answers for itself: `facts`
        (r"\n +\w+: (Of |Likewise)", set()),  # no sentence says what it is
        (r"\"cuda\" in", set()),
        (r"/dev/nvidia|\"nvidia", set()),
        (
            r"_object\(|_object_list\(|import pickle|allow_pickle=True",  # unpickling runs code
            {"common/files/symbols.py"},  # which resolves no name: test_foreign_states.py
        ),
        (
            r"\.write_(text|bytes)\(|\.open\(\"[wax]|savez\w*\([^)]*/|copytree|O_CREAT|export_chrome_trace",
            {
                "common/files/writing.py",  # which follows no link
                "common/files/written.py",
                "common/runtime/parent/processes/scratch.py",  # into a folder of this moment, for its user alone
                "common/runtime/parent/models/weight_transfer.py",
                "common/runtime/parent/judging/finishing.py",
                "common/runtime/worker/private_network.py",  # below /proc
                "torch_impl/profiling.py",  # likewise, and copied from there
                "common/files/output_file.py",  # what the user names with -o
                "experiments/printing/picture.py",
                "experiments/exporting/to_tensorboard.py",
            },
        ),
        (
            r"rmtree|os\.remove\(",
            {
                "common/runtime/parent/processes/scratch.py",
                "common/runtime/parent/models/weight_transfer.py",
                "experiments/recording/put_back.py",  # a folder that a rerun has made in the place of a user's file
            },
        ),
    ],
)
def test_what_is_gone_stays_gone(pattern: str, allowed: set[str]) -> None:
    found = {name for name, text in FILES.items() if re.search(pattern, text)}
    assert found <= allowed


def test_a_percentage_is_written_in_one_way() -> None:
    files = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "benchmarks").rglob("*.py")}
    assert [name for name, text in (FILES | files).items() if re.search(r":[^ {}]*%\}", text)] == [], (
        "4.2 %, as `percent`"
    )


def test_a_counterpart_is_that_of_its_counterpart() -> None:
    found = {f"{framework}:{row.name}": row.counterpart for framework, row in catalogue() if row.counterpart}
    assert {other: name for name, other in found.items()} == found
    assert found["torch:tp"] == "tf:dtensor"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_folder_and_catalogue_agree(framework: str) -> None:
    """One file and one cost model a strategy, named alike; strategies that hold the full model everywhere may share one."""
    folder = ROOT / Path(*FRAMEWORKS[framework].split(".")[1:]) / "strategies"
    rows = {row.name: row for row in strategies_of(framework)}
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


def test_the_table_is_there() -> None:
    assert [kind for kind, *_ in TABLE] == [
        "an option of a strategy",
        "a technique",
        "a feature of a model",
        "an optimizer",
        "an axis of the mesh",
        "a field of the request",
        "a quantity",
        "a strategy",
        "a model",
        "a user model",
    ]


FEATURES = {
    "dropout": ["dropout"],
    "batch_norm": ["batch_norm", "batch_norms"],
    "tied": ["tied"],
    "ignored": ["ignored", "ignores_targets"],
    "experts": ["experts", "balance_of"],
    "style": ["is_llama"],
}
"""Feature of a model -> the words that name it."""


def technique_files() -> dict[str, set[str]]:
    names = {each.__module__.split(".")[-2]: each for each in Techniques.__bases__}
    return {name: files_of(name, flags(each), "techniques") for name, each in names.items()}


def optimizer_files() -> dict[str, set[str]]:
    return {
        name: files_of(name, [name, kind], "optimizers") - of_other_units(name, "optimizers", OPTIMIZERS)
        for name, kind in OPTIMIZERS.items()
    }


def feature_files() -> dict[str, set[str]]:
    return {name: files_of(name, words, "features") for name, words in FEATURES.items()}


def axis_files() -> dict[str, set[str]]:
    return {name: files_of_axis(name) for name in AXES}


UNITS = {
    "an axis of the mesh": axis_files,
    "a technique": technique_files,
    "an optimizer": optimizer_files,
    "a feature of a model": feature_files,
}
"""Kind -> what gives each unit of it, and the files in which the unit occurs."""


@pytest.mark.parametrize("kind", UNITS)
def test_the_figure_is_that_of_the_largest_unit(kind: str) -> None:
    """Every unit is counted, and the table has the largest as its figure and its example."""
    ((most, example),) = ((int(most), example) for row, most, _, example in TABLE if row == kind)
    sizes = {unit: len(files) for unit, files in UNITS[kind]().items()}
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
        found = UNITS[kind]()[example]
    else:
        found = files_that_declare(example) if "reads it" in places else files_with(example)
    assert len(found) <= int(most), sorted(found)
    strangers = {name for name in found if not any(pattern.search(name) for pattern in patterns)}
    assert not strangers, f"CONTRIBUTING's row '{kind}' does not name {sorted(strangers)}"


def test_the_rows_that_run_elsewhere_are_described_alike_everywhere() -> None:
    """What the catalogue says of a strategy does not depend on the machine it is read on."""
    assert strategy_info("torch", "dp").emulation
    assert strategy_info("tf", "tpu").emulation
