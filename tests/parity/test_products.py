"""`make test-slow`: the full products; writes docs/parity.csv, and docs/parity.md, which counts its cells.

Resumes where it stopped; ONLY=torch:ddp,tf:mirrored restricts it. A part or a restriction leaves both files as they are.
"""

from collections.abc import Iterator

import pytest

from samestep.common.catalog import strategy_info
from tests.cells import sized
from tests.conftest import RunCell
from tests.parity.products import STEPS, Product, cells, chosen, store, write_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session", autouse=True)
def page(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.config.getoption("part") is None and all(map(chosen, cells())):
        write_page()


@pytest.mark.parametrize(
    "cell", [pytest.param(c, id=c.name, marks=getattr(pytest.mark, c.framework)) for c in filter(chosen, cells())]
)
def test_every_cell_takes_the_same_step(run_cell: RunCell, cell: Product) -> None:
    if cell.stored.exists():
        pytest.skip("measured already, by the same code")
    result = run_cell(
        cell.strategy,
        sized(strategy_info(*cell.strategy.partition("+")[0].split(":")), cell.model),
        **cell.devices,
        optimizer=cell.optimizer,
        dtype=cell.dtype,
        steps=STEPS,
    )
    assert result.parity.passed is not False, result.parity.reason
    store(cell, result)
