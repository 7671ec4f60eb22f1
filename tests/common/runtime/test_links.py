"""`--bandwidth`: runs over links of their own take the same step, and count what they send; what is no bandwidth is refused."""

from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.flag_words import read_bandwidth
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes import network
from tests.cells import SIZED


def test_bandwidths_are_bits_a_second() -> None:
    assert [read_bandwidth(text) for text in ("100kbit", "200mbit", "1.5gbit")] == [10**5, 2 * 10**8, 1_500_000_000]


@pytest.mark.parametrize("text", ["", "200", "200MB", "1kbit", "200gbit", "-1mbit", "1e3mbit", "9" * 40 + "mbit"])
def test_what_is_no_bandwidth_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--bandwidth is .* as in 200mbit"):
        parse(RunConfig(strategy="ddp", bandwidth=text))


def test_a_machine_without_links_says_so() -> None:
    class Forbids:
        def make_network(self, linked: int, bits_per_second: int) -> str:
            return "Operation not permitted"

    with pytest.raises(Unavailable, match=r"no links for --bandwidth here \(Operation not permitted\)"):
        network.link(Forbids(), 2, 10**8)
    with pytest.raises(Unavailable, match="at most 250 processes, and the run has 251"):
        network.link(Forbids(), 251, 10**8)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("torch:ddp", marks=pytest.mark.torch),
        pytest.param("torch:rpc", marks=pytest.mark.torch),
        pytest.param("tf:parameter_server", marks=pytest.mark.tf),  # asks processes in other networks what they sent
    ],
)
def test_a_run_over_links_is_the_same_and_counts_the_same(launcher: Launcher, tmp_path: Path, cell: str) -> None:
    config = RunConfig(workload=SIZED["mlp"], batch_size=48, steps=4, devices=2, out=str(tmp_path), bandwidth="200mbit")
    asked = Cell.parse(cell).apply_to(config)
    try:
        result = launcher.run(parse(asked), launch_of(asked))
    except Unavailable as unavailable:
        pytest.skip(str(unavailable))
    assert result.parity is not None
    assert result.parity.passed, result.parity.reason
    assert not result.uncounted
    assert result.config.bandwidth == "200mbit"
