"""Measures the size of the code as a reader sees it: `python -m benchmarks.code_size [FOLDER]`.

It counts the product's files, without tests and benchmarks: lines of code without docstrings, comments and blank lines; lines
per function without signature and docstring; lines per file; and how much is annotated.
"""

import ast
import dataclasses
import io
import statistics
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from samestep.common.errors import percent

PRODUCT = ("common", "torch_impl", "tf_impl", "experiments")
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of one file.

    Attributes:
        path: The file.
        lines: The number of all lines.
        code_lines: The number of lines with code.
        functions: The name and the number of lines in the body of each function.
        annotated: The number of arguments and results with a type.
        annotatable: The number of arguments and results that could have one.
    """

    path: Path
    lines: int
    code_lines: int
    functions: tuple[tuple[str, int], ...]
    annotated: int
    annotatable: int


def measure(path: Path) -> Size:
    """Returns the size of one file."""
    source = path.read_text()
    nodes = [*ast.walk(ast.parse(source))]
    code = _code_lines(source, nodes)
    functions = [node for node in nodes if isinstance(node, Function)]
    bodies = [
        (node.name, len(code & set(range(node.body[0].lineno, (node.end_lineno or 0) + 1)))) for node in functions
    ]
    places = [place for node in functions for place in _annotatable(node)]
    return Size(path, source.count("\n"), len(code), tuple(bodies), sum(p is not None for p in places), len(places))


def _code_lines(source: str, nodes: Sequence[ast.AST]) -> set[int]:
    statements = (node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    # Docstrings are strings that are statements, including those after attributes.
    docstrings = {line for node in statements for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    tokens = (t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in _LAYOUT)
    return {line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - docstrings


def _annotatable(node: Function) -> Iterator[ast.expr | None]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    yield node.returns
    yield from (a.annotation for a in arguments if a is not None and a.arg not in ("self", "cls"))


def product(root: Path) -> list[Size]:
    """Returns the sizes of all files of the product in a checkout."""
    return [measure(path) for folder in PRODUCT for path in sorted((root / folder).rglob("*.py"))]


def main(arguments: Sequence[str]) -> None:
    """Prints the figures of a checkout."""
    sizes = product(Path(arguments[0]) if arguments else Path(__file__).parents[1])
    bodies = sorted((lines, f"{size.path.name}:{name}") for size in sizes for name, lines in size.functions)
    longest_file = max(sizes, key=lambda size: size.lines)
    annotated = sum(size.annotated for size in sizes) / sum(size.annotatable for size in sizes)
    print(f"files: {len(sizes)}, median {statistics.median(size.lines for size in sizes):.0f} lines, ", end="")
    print(f"longest {longest_file.lines} ({longest_file.path.name})")
    print(f"code lines: {sum(size.code_lines for size in sizes)}")
    print(f"functions: {len(bodies)}, median {statistics.median(n for n, _ in bodies):.0f} lines, longest {bodies[-1]}")
    print(f"annotated: {percent(annotated, 1)}")


if __name__ == "__main__":
    main(sys.argv[1:])
