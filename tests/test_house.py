"""The house rules that can be counted: sizes, types, what no file may do any more, and CONTRIBUTING's table of what to touch."""

import ast
import re
import statistics
from pathlib import Path

import pytest

from benchmarks.code_size import product
from samestep.common.catalog import catalogue, framework_info, strategy_info
from samestep.common.request import FRAMEWORKS

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
        (r"Mesh\.parse\(", {"common/run.py"}),  # parsed once
        (r"batch_size or 0|\.steps or 0", set()),
        (r"\.options(\[|\.get\()", set()),  # typed
        (r"\.optimizer\(config|\.optimizer\(run", set()),
        (r"workload: Workload, config: RunConfig", set()),
        (
            r"dict\[str, Any\]",
            {
                "torch_impl/strategies/deepspeed.py",
                "torch_impl/exchanges.py",
                "torch_impl/deepspeed_engine.py",
                "torch_impl/replicas.py",
            },
        ),
        (r"endswith\(\"/?(kernel|bias|table|scale)|\"norm/\"|\"attention/key\"", set()),  # roles are data
        (r"\blaws?\b|micro_batches: int|\bCut\b", set()),  # the words of docs/glossary.md
        (r"isinstance\([^)]*TransformerSpec", set()),
        (r"\"cuda\" in", {"common/runtime/records.py"}),  # how version 1 guessed
        (r"/dev/nvidia|\"nvidia", set()),
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


# --- what to touch ----------------------------------------------------------------------------------------------------

TABLE = re.findall(
    r"^\| (a[^|]+?) \| (\d+) \| ([^|]+?) \| `(\w+)` \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
)


def files_with(word: str) -> set[str]:
    """The files of the product whose code, not its docstrings and comments, has a word."""
    found = set()
    for name, text in FILES.items():
        for node in ast.walk(ast.parse(text)):
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = {value for value in vars(node).values() if isinstance(value, str)} if not docstring else set()
            if word in names:
                found.add(name)
    return found


def files_that_declare(field: str) -> set[str]:
    """The files of the product with a dataclass that has a field."""
    return {name for name, text in FILES.items() if re.search(rf"^    {field}: ", text, re.MULTILINE)}


def test_the_table_is_there() -> None:
    assert [kind for kind, *_ in TABLE] == [
        "an option of a strategy",
        "a technique",
        "a field of the request",
        "a column",
        "a strategy",
        "a model",
    ]


@pytest.mark.parametrize(("kind", "most", "places", "example"), TABLE, ids=[row[0] for row in TABLE])
def test_what_to_touch_is_what_an_example_touches(kind: str, most: str, places: str, example: str) -> None:
    """An example that stands in the tree occurs in the files that the table names, and in no other."""
    named = re.findall(r"`([^`]+)`", places)
    patterns = [re.compile("(^|/)" + re.escape(each).replace("NAME", r"\w+") + "$") for each in named]
    found = files_that_declare(example) if "reads it" in places else files_with(example)
    assert len(found) <= int(most), sorted(found)
    strangers = {name for name in found if not any(pattern.search(name) for pattern in patterns)}
    assert not strangers, f"CONTRIBUTING's row '{kind}' does not name {sorted(strangers)}"


def test_the_rows_that_run_elsewhere_are_described_alike_everywhere() -> None:
    """What the catalogue says of a strategy does not depend on the machine it is read on."""
    assert strategy_info("torch", "dp").emulation
    assert strategy_info("tf", "tpu").emulation
