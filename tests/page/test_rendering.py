"""Text from a run stays text, wherever it is put."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from samestep.common.cell import Cell
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.page.loaded import Loaded, Problem, make_group
from samestep.experiments.page.page import page
from samestep.experiments.page.rendering import breakable, prose, render

NASTY = "<script>x</script> & \"quoted\" 'once' \x00\x1b[31m \ud800"


def test_text_is_escaped_and_what_no_page_can_show_is_replaced() -> None:
    row = Row(Cell("torch", NASTY), "failed", NASTY)
    group = make_group(NASTY, Comparison((row,)), {}, 0)
    text = page(Loaded((group,), (Problem(Path("gone"), NASTY),)))
    assert "&lt;script&gt;x&lt;/script&gt; &amp; " in text
    assert "<script>x" not in text and '"quoted"' not in text
    assert "\x00" not in text and "\x1b" not in text
    assert text.encode()


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("page", {})


def test_backticks_mark_code() -> None:
    assert prose("use `a<b` here") == Markup("use <code>a&lt;b</code> here")


def test_a_cell_is_broken_between_its_parts() -> None:
    text = breakable("torch:rpc_parameter_server+clip_norm=<1>")
    assert text == "torch:<wbr>rpc_<wbr>parameter_<wbr>server<wbr>+clip_<wbr>norm=&lt;1&gt;"
