"""The catalogue for programs: a record of each strategy."""

from collections.abc import Callable, Sequence

from samestep.common.catalog import require_row
from samestep.common.errors import Unavailable
from samestep.common.flags import Scalar, flags
from samestep.common.strategy import StrategyInfo
from samestep.experiments.printing.formats import Case, Document


def listing(rows: Sequence[tuple[str, StrategyInfo]], text: Callable[[], str]) -> Document:
    """Makes the document of some rows of the catalogue.

    Args:
        rows: Framework and row of each.
        text: Makes what people read.
    """
    records = [_record(framework, row) for framework, row in rows]
    cases = [Case(str(r["cell"]), "skipped" if r["lacks"] else "passed", str(r["lacks"])) for r in records]
    options = [_options(row) for _, row in rows]
    whole = [{**record, "options": each} for record, each in zip(records, options, strict=True)]
    return Document("samestep strategies", text, {"strategies": whole}, records, cases)


def _record(framework: str, row: StrategyInfo) -> dict[str, Scalar]:
    return {
        "cell": f"{framework}:{row.name}",
        "summary": row.summary,
        "goal": row.goal,
        "data_split": row.data_split.answer,
        "data_split_how": row.data_split.how,
        "model_split": row.model_split.answer,
        "model_split_how": row.model_split.how,
        "hardware": row.hardware,
        "mesh_axes": " ".join(row.axes),
        "dtypes": " ".join(row.dtypes),
        "api": row.reference,
        "upstream": row.status,
        "twin": row.twin,
        "emulation": row.emulation,
        "lacks": lacks(framework, row.name),
    }


def _options(row: StrategyInfo) -> list[dict[str, object]]:
    return [
        {"name": name, "default": field.default, "choices": field.metadata["choices"], "help": field.metadata["help"]}
        for name, field in flags(row.options).items()
    ]


def lacks(framework: str, strategy: str) -> str:
    """Returns what has to be installed before a strategy can run here; "" if nothing.

    Args:
        framework: A key of FRAMEWORKS.
        strategy: Its name.
    """
    try:
        require_row(framework, strategy)
    except Unavailable as error:
        return str(error)
    return ""
