"""Text from a run stays text, wherever it is put."""

import pytest

from samestep.experiments.page.markup import breakable, element, html, prose, table

NASTY = "<script>x</script> & \"quoted\" 'once' \x00\x1b[31m \ud800"


@pytest.mark.parametrize("made", [element("p", NASTY), element("p", element("b", "a"), NASTY), table(["a"], [[NASTY]])])
def test_text_is_escaped_and_what_no_page_can_show_is_replaced(made: object) -> None:
    text = html(made)
    assert "&lt;script&gt;x&lt;/script&gt; &amp; " in text
    assert "\x00" not in text and "\x1b" not in text
    assert text.encode()


def test_attributes_are_escaped_as_well() -> None:
    text = html(element("p", title=NASTY, data_row="r1", class_="a", hidden=None, data_v=0))
    assert text.startswith('<p title="')
    assert "&quot;quoted&quot;" in text and "\x1b" not in text
    assert text.endswith('data-row="r1" class="a" data-v="0"></p>')
    assert text.encode()


def test_backticks_mark_code() -> None:
    assert html(element("p", *prose("use `a<b` here"))) == "<p>use <code>a&lt;b</code> here</p>"


def test_a_cell_is_broken_between_its_parts() -> None:
    text = html(element("a", *breakable("torch:rpc_parameter_server+clip_norm=1")))
    assert text == "<a>torch:<wbr>rpc_<wbr>parameter_<wbr>server<wbr>+clip_<wbr>norm=1</a>"
