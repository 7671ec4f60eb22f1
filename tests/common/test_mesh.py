import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samestep.common.errors import ConfigError
from samestep.common.mesh import AXES, Mesh


def test_a_mesh_keeps_the_order_in_which_it_was_written():
    mesh = Mesh.parse("tensor=2,data=3")
    assert mesh.axes == (("tensor", 2), ("data", 3))
    assert mesh.size == 6


def test_an_axis_that_is_not_there_has_size_one():
    assert [Mesh.parse("data=4").axis(name) for name in AXES] == [4, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("written", ["pipe=2,data=3,tensor=2", "tensor=2,pipe=2,data=3"])
def test_ranks_lie_in_one_order_however_a_mesh_is_written(written: str) -> None:
    mesh = Mesh.parse(written)
    assert [mesh.part(rank, "layers") for rank in (0, 5, 6, 11)] == [0, 0, 1, 1]
    assert [mesh.part(rank, "examples") for rank in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [mesh.part(rank, "features") for rank in range(4)] == [0, 1, 0, 1]
    assert mesh.members("data", 3, 7) == (7, 9, 11)
    assert mesh.members("tensor", 2, 7) == (6, 7)


def test_examples_are_cut_along_every_axis_that_cuts_them() -> None:
    mesh = Mesh.parse("shard=2,data=3")
    assert (mesh.replicas, mesh.parts("parameters"), mesh.parts("positions")) == (6, 2, 1)
    assert [mesh.part(rank, "examples") for rank in range(6)] == [0, 1, 2, 3, 4, 5]
    assert [mesh.part(rank, "parameters") for rank in range(6)] == [0, 1, 0, 1, 0, 1]


def test_spaces_do_not_count():
    assert Mesh.parse(" data = 2 , pipe = 2 ") == Mesh.parse("data=2,pipe=2")


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from([*AXES]), st.integers(1, 10_000), min_size=1))
def test_a_mesh_is_read_back_from_what_it_prints(axes):
    mesh = Mesh(tuple(axes.items()))
    assert Mesh.parse(str(mesh)) == mesh


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "two", "", "²", "2=3", "nan"])
def test_a_size_that_is_no_positive_integer_is_named(size):
    with pytest.raises(ConfigError) as caught:
        Mesh.parse(f"data={size}")
    assert str(caught.value) == f"mesh axis 'data' has size '{size}'; give a positive integer, as in data=2,tensor=2."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "dta=2",
            "unknown mesh axis 'dta'. Did you mean 'data'? Choose from: data, shard, context, expert, tensor, pipe.",
        ),
        ("=2", "unknown mesh axis ''. Choose from: data, shard, context, expert, tensor, pipe."),
        ("", "mesh '' has an empty axis; write it as in data=2,tensor=2."),
        ("data=2,", "mesh 'data=2,' has an empty axis; write it as in data=2,tensor=2."),
        ("data=2;tensor=2", "mesh axis 'data' has size '2;tensor=2'; give a positive integer, as in data=2,tensor=2."),
    ],
)
def test_what_is_no_axis_is_a_config_error_of_one_line(text, said):
    with pytest.raises(ConfigError) as caught:
        Mesh.parse(text)
    assert str(caught.value) == said


def test_a_misspelled_axis_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'tensor'"):
        Mesh.parse("data=2,tensr=2")


def test_an_axis_may_stand_there_only_once():
    with pytest.raises(ConfigError, match="mesh 'data=2,data=2' names the axis 'data' twice"):
        Mesh.parse("data=2,data=2")
